"""Pooling: the maximum or the mean of windows that slide over each channel.

    MAX:  y[n, c, i, j] = the largest x inside window (i, j), clipped to the image; of equals the first in row order
    AVE:  y[n, c, i, j] = sum of x inside window (i, j) / the window's size, padding included, but counted no
          further than one pad behind the image

Fields of `pooling_param` (default): pool (MAX; AVE); kernel_size, or kernel_h and kernel_w; stride (1), or
stride_h and stride_w; pad (0), or pad_h and pad_w; global_pooling (false): one window, the whole image;
round_mode (CEIL; FLOOR). engine does not change the result. STOCHASTIC is not supported.
Bottom: (N, C, H, W). Tops: (N, C, P, Q), P = ceil((H + 2 pad - kernel) / stride) + 1 (floor with FLOOR), less one
if there is any padding and the last window would start behind image and left pad; with MAX optionally a second
top of the same shape: where the maximum lies, as row * W + column. No parameters.

Two differences from Caffe (pooling_layer.cpp). A last window that lies outside the image (no pad, stride above
kernel) holds 0 and passes no gradient, with -1 in the second top, where Caffe has -FLT_MAX or 0/0 and writes out
of bounds. A NaN in a window makes its maximum NaN, where Caffe hides it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import pooling
from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.engine.kernels.pooling import Pair, Window
from mgcaffe.engine.layer import Layer, between
from mgcaffe.engine.layers.fields import refuse_fork_fields
from mgcaffe.engine.parameter import Shape
from mgcaffe.engine.registry import register

_FORK_FIELDS = {
    "torch_pooling": False,
    "avg_include_pad": True,
    "axis": 1,
    "pad_3d": [],
    "kernel_size_3d": [],
    "stride_3d": [],
}


@register("Pooling")
class Pooling(Layer):
    """The layer; see the module's text."""

    tops = between(1, 2)
    keeps_bottoms = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Checks the fields."""
        param = self.param.pooling_param
        refuse_fork_fields(self, param, "pooling_param", _FORK_FIELDS)
        if param.pool == param.STOCHASTIC:
            self.fail("STOCHASTIC pooling is not supported", "pooling_param.pool", hint="use MAX or AVE")
        self.maximum = param.pool == param.MAX
        if len(self.param.top) > 1 and not self.maximum:
            self.fail("only MAX pooling has a second top", "top")
        self.stride = self._pair("stride", "stride", 1)
        self.pad = self._pair("pad", "pad", 0)
        if param.global_pooling:
            self._check_global()
            return
        self.kernel = self._pair("kernel_size", "kernel", 0)
        for name, pair in (("kernel_size", self.kernel), ("stride", self.stride)):
            if min(pair) < 1:
                self.fail(f"{name} has to be at least 1, for rows and columns", "pooling_param")
        if any(pad >= kernel for pad, kernel in zip(self.pad, self.kernel, strict=True)):
            self.fail(f"pad {self.pad} has to be smaller than the kernel {self.kernel}", "pooling_param")

    def _pair(self, field: str, short: str, default: int) -> Pair:
        """Rows and columns of a field that can be given once or as _h and _w."""
        param = self.param.pooling_param
        names = [f"{short}_h", f"{short}_w"]
        given = [name for name in names if param.HasField(name)]
        if given and param.HasField(field):
            where = f"pooling_param.{given[0]}"
            self.fail(f"give either {field} or {names[0]} and {names[1]}, not both", where)
        if len(given) == 1:
            self.fail(f"{names[0]} and {names[1]} have to be given together", f"pooling_param.{given[0]}")
        if given:
            return getattr(param, names[0]), getattr(param, names[1])
        value = getattr(param, field) if param.HasField(field) else default
        return value, value

    def _check_global(self) -> None:
        param = self.param.pooling_param
        for name in ("kernel_size", "kernel_h", "kernel_w"):
            if param.HasField(name):
                self.fail(f"global_pooling takes no {name}: the window is the image", f"pooling_param.{name}")
        if any(self.pad) or self.stride != (1, 1):
            self.fail("global_pooling needs pad 0 and stride 1", "pooling_param.global_pooling")

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """(N, C, P, Q), once or twice."""
        shape = bottom_shapes[0]
        param = self.param.pooling_param
        if len(shape) != 4:
            self.fail(f"the bottom needs 4 axes (N, C, H, W), not shape {shape}")
        kernel = (shape[2], shape[3]) if param.global_pooling else self.kernel
        self.window = Window(kernel, self.stride, self.pad, ceil=param.round_mode == param.CEIL)
        out = self.window.output_size(shape[2:])
        if min(out) < 1:
            self.fail(f"kernel {kernel} does not fit the bottom, of shape {shape}", "pooling_param")
        return [(*shape[:2], *out)] * max(len(self.param.top), 1)

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Pools; keeps the bottom's shape and, for MAX, the places of the maxima."""
        x = bottoms[0]
        if not self.maximum:
            self.saved = (x.shape, format_of(x), None)
            return [pooling.average_forward(x, self.window)]
        y, places = pooling.max_forward(x, self.window)
        self.saved = (x.shape, format_of(x), places if self.backward_follows else None)
        if len(self.param.top) < 2:
            return [y]
        return [y, pooling.mask_of(places, x.shape[2:], self.window).to(y.dtype)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Hands each window's gradient to its maximum, or spreads it."""
        if not wanted[0]:
            return [None]
        shape, memory_format, places = self.saved
        if self.maximum:
            return [pooling.max_backward(top_diffs[0], places, shape, memory_format, self.window)]
        return [pooling.average_backward(top_diffs[0], shape, memory_format, self.window)]
