"""Interp: resizes each channel by interpolating between the four nearest pixels; corners stay corners.

    y[n, c, i, j] = x at row i (H - 1) / (P - 1), column j (W - 1) / (Q - 1), between pixels in proportion to the
                    distance; row 0 where P = 1, column 0 where Q = 1.      dx hands dy back in the same proportion

Fields of `interp_param` (default): exactly one way to say the size: height and width: P and Q; zoom_factor z: P = H +
(H - 1) (z - 1); shrink_factor s: P = (H - 1) / s + 1, rounded down; both factors: first shrunk, then zoomed; or a
second bottom: its height and width. Q likewise. pad_beg, pad_end (0): 0 or below: so many pixels are cut off before
(behind) the rows and the columns of the bottom first; H and W count without them.
Bottoms: x (N, C, H, W); optionally a blob of four axes whose size the top gets, to which nothing flows.
Top: (N, C, P, Q).
No differences from Caffe.
(DeepLab's Caffe: interp_layer.cpp, interp.cpp; both factors at once in PSPNet's; the second bottom in SegStereo's.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.engine.layer import Layer, between
from mgcaffe.engine.layers.shared.fields import refuse_empty_images
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape
from mgcaffe.prototxt import has_field

_WAYS = "height and width, zoom_factor and/or shrink_factor, or a second bottom"


@register("Interp")
class Interp(Layer):
    """The layer; see the module's text."""

    capturable = True
    bottoms = between(1, 2)
    keeps_bottoms = False
    drops_gradients = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check that the size is said in one way."""
        param = self.param.interp_param
        sides = [side for side in ("height", "width") if has_field(param, side)]
        if len(sides) == 1:
            self.fail("height and width go together", f"interp_param.{sides[0]}", hint="give both or neither")
        factors = [name for name in ("zoom_factor", "shrink_factor") if has_field(param, name)]
        ways = [bool(sides), bool(factors), len(bottom_shapes) == 2]
        if sum(ways) != 1:
            found = "the size is said in more than one way" if any(ways) else "nothing says the size of the top"
            self.fail(f"{found}: it takes exactly one of {_WAYS}", "interp_param")
        for name in (*sides, *factors):
            if getattr(param, name) < 1:
                self.fail(f"{name} has to be at least 1, not {getattr(param, name)}", f"interp_param.{name}")
        for name in ("pad_beg", "pad_end"):
            if getattr(param, name) > 0:
                self.fail(
                    f"{name} {getattr(param, name)}: only cutting off is possible, with values of 0 or below",
                    f"interp_param.{name}",
                )

    def differentiable(self, bottom: int) -> bool:
        """Bottom 1 only lends its size."""
        return bottom == 0

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """(N, C, P, Q)."""
        param, shape = self.param.interp_param, bottom_shapes[0]
        for index, found in enumerate(bottom_shapes):
            if len(found) != 4:
                self.fail(f"bottom {index} needs 4 axes (N, C, H, W), not shape {found}")
            refuse_empty_images(self, found, index)
        cut = param.pad_beg + param.pad_end
        inner = (shape[2] + cut, shape[3] + cut)
        if min(inner) < 1:
            field = "pad_beg" if param.HasField("pad_beg") else "pad_end"
            where = f"interp_param.{field}" if cut else None
            self.fail(f"pad_beg {param.pad_beg} and pad_end {param.pad_end} leave nothing of a bottom {shape}", where)
        rest = (slice(-param.pad_beg, -param.pad_beg + size) for size in inner)
        self.window = (slice(None), slice(None), *rest)
        self.shape, self.inner = shape, inner
        rows, columns = (bottom_shapes[1][axis] if len(bottom_shapes) == 2 else self._size(axis) for axis in (2, 3))
        if min(rows, columns) < 1:
            self.fail(f"the top would have size {rows} x {columns}")
        self.size = (rows, columns)
        return [(*shape[:2], rows, columns)]

    def _size(self, axis: int) -> int:
        """Return the top's size along an axis, by the fields."""
        param, size = self.param.interp_param, self.inner[axis - 2]
        if param.HasField("height"):
            return int(param.height if axis == 2 else param.width)
        shrunk = (size - 1) // param.shrink_factor + 1
        return int(shrunk + (shrunk - 1) * (param.zoom_factor - 1))

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep nothing but the memory format."""
        x = bottoms[0]
        self.saved = format_of(x)
        return [torch.ops.aten.upsample_bilinear2d(x[self.window], self.size, True)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Apply the adjoint; zero where pixels were cut off."""
        dx = self._spread(top_diffs[0]) if wanted[0] else None
        return [dx, None][: len(wanted)]

    def _spread(self, dy: torch.Tensor) -> torch.Tensor:
        whole = (*self.shape[:2], *self.inner)
        inner: torch.Tensor = torch.ops.aten.upsample_bilinear2d_backward(dy, self.size, whole, True)
        if self.inner == self.shape[2:]:
            return inner
        dx = torch.empty(self.shape, dtype=dy.dtype, device=dy.device, memory_format=self.saved).zero_()
        dx[self.window] = inner
        return dx
