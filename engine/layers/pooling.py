"""Pooling: the maximum, the mean or a random pixel of windows that slide over each channel.

    MAX:  y[n, c, i, j] = the largest x inside window (i, j), clipped to the image; of equals the first in row order
    AVE:  y[n, c, i, j] = sum of x inside window (i, j) / the window's size, padding included, but counted no
          further than one pad behind the image
    STOCHASTIC, training:  y = a pixel of the window, drawn with a probability proportional to its value
    STOCHASTIC, testing:   y = sum of x^2 / sum of x inside the window, 0 where that sum is not above 0

STOCHASTIC is for values that are not negative, as behind a ReLU, and takes no pad. A window of zeros gives 0; in
training its gradient goes to its first pixel. The random numbers come from the net's stream.

Fields of `pooling_param` (default): pool (MAX; AVE, STOCHASTIC); kernel_size, or kernel_h and kernel_w (one of these
beside kernel_size has no effect, which a warning says); stride (1), or stride_h and stride_w; pad (0), or pad_h and
pad_w; global_pooling (false): one window, the whole image; round_mode (CEIL; FLOOR), in forks also called ceil_mode
(true: CEIL, false: FLOOR) and torch_pooling (true: FLOOR).
Bottom: (N, C, H, W).
Tops: (N, C, P, Q), P = ceil((H + 2 pad - kernel) / stride) + 1 (floor with FLOOR), less one if there is any padding and
the last window would start behind image and left pad; with MAX optionally a second top of the same shape: where the
maximum lies, as row * W + column.
Differences from Caffe: a last window that lies outside the image (no pad, stride above kernel) holds 0 and passes no
gradient, with -1 in the second top, where Caffe has -FLT_MAX or 0/0 and writes out of bounds. MAX of a window that has
-inf alone is -inf, with -1 in the second top, where Caffe has -FLT_MAX and writes out of bounds. A NaN in a window
makes its value NaN, where MAX hides it in Caffe. STOCHASTIC runs on a CPU as well, with other random numbers than
Caffe's; its gradient in the TEST phase is that of the formula, where Caffe hands it to pixels drawn before; and where
negative values keep all partial sums below the mark, it takes the window's first pixel, where Caffe leaves the top
undefined.
(Caffe: pooling_layer.cpp, pooling_layer.cu.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.pooling import Pair, Window
from mgcaffe.engine.layer import Layer, between
from mgcaffe.engine.layers.shared.fields import refuse_empty_images, refuse_fork_fields, warn_of_idle_field
from mgcaffe.engine.layers.shared.pooling_methods import POOLING_METHODS
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape
from mgcaffe.prototxt import PoolingParameter, has_field

_FORK_FIELDS = {
    "avg_include_pad": True,
    "axis": 1,
    "pad_3d": [],
    "kernel_size_3d": [],
    "stride_3d": [],
}


@register("Pooling")
class Pooling(Layer):
    """The layer; see the module's text."""

    capturable = True
    tops = between(1, 2)
    keeps_bottoms = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the fields."""
        param = self.param.pooling_param
        refuse_fork_fields(self, param, "pooling_param", _FORK_FIELDS)
        name = PoolingParameter.PoolMethod.Name(param.pool)
        self.method = POOLING_METHODS[name](self)
        self.keeps_bottoms = self.method.reads_bottom(self.phase)
        self.capturable = self.capturable and not self.method.draws
        if len(self.param.top) > 1 and not self.method.has_mask:
            self.fail("only MAX pooling has a second top", "top")
        self.ceil = self._rounds_up()
        self.stride = self._pair("stride", "stride", 1)
        self.pad = self._pair("pad", "pad", 0)
        if any(self.pad) and not self.method.takes_pad:
            self.fail(f"{name} pooling takes no pad", "pooling_param.pool", hint="remove pad, or use MAX or AVE")
        if param.global_pooling:
            self._check_global()
            return
        self.kernel = self._pair("kernel_size", "kernel", 0)
        for name, pair in (("kernel_size", self.kernel), ("stride", self.stride)):
            if min(pair) < 1:
                where = self._field_of(name, pair.index(min(pair)))
                self.fail(f"{name} has to be at least 1, for rows and columns", where)
        for axis, (pad, kernel) in enumerate(zip(self.pad, self.kernel, strict=True)):
            if pad >= kernel:
                where = self._field_of("pad", axis)
                self.fail(f"pad {self.pad} has to be smaller than the kernel {self.kernel}", where)

    def _rounds_up(self) -> bool:
        """Return whether sizes are rounded up, by whichever of the three fields says so."""
        param = self.param.pooling_param
        answers = {
            "round_mode": param.round_mode == param.CEIL,
            "ceil_mode": param.ceil_mode,
            "torch_pooling": not param.torch_pooling,
        }
        given = {name: answer for name, answer in answers.items() if has_field(param, name)}
        if len(set(given.values())) > 1:
            where = f"pooling_param.{list(given)[-1]}"
            self.fail(f"{' and '.join(given)} say the opposite of each other about rounding", where)
        return next(iter(given.values()), True)

    def _pair(self, field: str, short: str, default: int) -> Pair:
        """Return rows and columns of a field that can be given once or as _h and _w.

        Caffe takes no notice of one of the latter beside kernel_size, but refuses it beside stride and pad.
        """
        param = self.param.pooling_param
        names = [f"{short}_h", f"{short}_w"]
        given = [name for name in names if has_field(param, name)]
        if len(given) == 1 and field == "kernel_size" and has_field(param, field):
            warn_of_idle_field(self, f"pooling_param.{given[0]}", f"beside {field} and without its partner")
            given = []
        if given and has_field(param, field):
            where = f"pooling_param.{given[0]}"
            self.fail(f"give either {field} or {names[0]} and {names[1]}, not both", where)
        if len(given) == 1:
            self.fail(f"{names[0]} and {names[1]} have to be given together", f"pooling_param.{given[0]}")
        if given:
            return getattr(param, names[0]), getattr(param, names[1])
        value = getattr(param, field) if has_field(param, field) else default
        return value, value

    def _field_of(self, field: str, axis: int) -> str:
        """Return the field that says `field` for rows (axis 0) or columns (1)."""
        param, side = self.param.pooling_param, f"{field.removesuffix('_size')}_{'hw'[axis]}"
        return f"pooling_param.{side if has_field(param, side) and not has_field(param, field) else field}"

    def _check_global(self) -> None:
        param = self.param.pooling_param
        for name in ("kernel_size", "kernel_h", "kernel_w"):
            if has_field(param, name):
                self.fail(f"global_pooling takes no {name}: the window is the image", f"pooling_param.{name}")
        if any(self.pad) or self.stride != (1, 1):
            self.fail("global_pooling needs pad 0 and stride 1", "pooling_param.global_pooling")

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """(N, C, P, Q), once or twice."""
        shape = bottom_shapes[0]
        param = self.param.pooling_param
        if len(shape) != 4:
            self.fail(f"the bottom needs 4 axes (N, C, H, W), not shape {shape}")
        refuse_empty_images(self, shape)
        kernel = (shape[2], shape[3]) if param.global_pooling else self.kernel
        self.window = Window(kernel, self.stride, self.pad, ceil=self.ceil)
        out = self.window.output_size(shape[2:])
        if min(out) < 1:
            where = self._field_of("kernel_size", out.index(min(out)))
            self.fail(f"kernel {kernel} does not fit the bottom, of shape {shape}", where)
        return [(*shape[:2], *out)] * max(len(self.param.top), 1)

    def others_bytes(self, top_shapes: Sequence[Shape]) -> int:
        """Return the size of the places, which are 64-bit numbers."""
        return math.prod(top_shapes[0]) * self.method.place_bytes

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Pool; keep what the method's backward needs."""
        tops, self.saved = self.method.forward(bottoms[0], self.window, self.backward_follows)
        return tops

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Hand each window's gradient on as the method does."""
        if not wanted[0]:
            return [None]
        return [self.method.backward(top_diffs[0], self.saved, self.window)]
