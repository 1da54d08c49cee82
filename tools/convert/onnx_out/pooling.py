"""Pooling with Caffe's windows and divisors in ONNX's operators.

ONNX's own ceil_mode and divisors differ from Caffe's in corner cases, and between versions. So every window is said
with explicit pads and rounding down: behind the image there is as much padding as the last window needs, which for the
means is made good by a constant factor for each window.
"""

from __future__ import annotations

import numpy as np

from mgcaffe.engine.kernels.pooling import Pair, Window
from mgcaffe.engine.layer import TRAIN
from mgcaffe.engine.layers.interp import Interp
from mgcaffe.engine.layers.pooling import Pooling
from mgcaffe.engine.layers.roi_pooling import ROIPooling
from mgcaffe.engine.layers.shared.pooling_methods import AveragePooling, MaxPooling, StochasticPooling
from mgcaffe.engine.layers.spp import SPP
from mgcaffe.tools.convert.onnx_out.emitter import Emitter, Operator


def pooling(e: Emitter, layer: Pooling) -> list[str]:
    """MaxPool or AveragePool with explicit pads, or the global ones; the mask is MaxPool's Indices in each channel."""
    return _pooled(e, layer, e.top_count)


def spp(e: Emitter, layer: SPP) -> list[str]:
    """Each level as Pooling is written, then Flatten and Concat."""
    levels = [_pooled(e, level, 1)[0] for level in layer.levels]
    if len(levels) == 1:
        return levels
    return [e.node("Concat", *(e.node("Flatten", level, axis=1) for level in levels), axis=1)]


def _pooled(e: Emitter, layer: Pooling, tops: int) -> list[str]:
    size: Pair = (e.bottom_shapes[0][2], e.bottom_shapes[0][3])
    windows = _Windows(layer.window, size)
    if isinstance(layer.method, MaxPooling):
        return _maxima(e, windows, tops)
    if isinstance(layer.method, AveragePooling):
        return [windows.with_empty_ones(e, _means(e, e.x, windows), 0)]
    assert isinstance(layer.method, StochasticPooling)
    if layer.phase == TRAIN:
        e.refuse("it draws pixels at random also in a test, since its own phase is TRAIN", "phase")
    return [windows.with_empty_ones(e, _weighted_means(e, windows), 0)]


class _Windows:
    """The windows of a pooling layer over an image of a certain size.

    Attributes:
        out: how many windows there are, without those that lie outside the image.
        pads: before rows and columns, then behind them, as ONNX has them.
        is_global: one window that is the image.
    """

    def __init__(self, window: Window, size: Pair) -> None:
        self.window, self.size = window, size
        out, self.empty = window.output_size(size), window.empty(size)
        self.out: Pair = (out[0] - self.empty[0], out[1] - self.empty[1])
        behind = [
            max(0, (count - 1) * stride + kernel - extent - pad)
            for count, stride, kernel, extent, pad in zip(
                self.out, window.stride, window.kernel, size, window.pad, strict=True
            )
        ]
        self.pads = (*window.pad, *behind)
        self.is_global = window.kernel == size and not any(self.pads) and out == (1, 1)

    @property
    def attributes(self) -> dict[str, object]:
        """The attributes of ONNX's pooling operators."""
        return {"kernel_shape": self.window.kernel, "strides": self.window.stride, "pads": self.pads}

    def divisor_factors(self) -> np.ndarray | None:
        """Return, for each window, by what a mean over the whole kernel is too small, (1, 1, P, Q); None: by nothing.

        Caffe counts no pixels further than one pad behind the image.
        """
        lines = []
        for axis in (0, 1):
            kernel, pad = self.window.kernel[axis], self.window.pad[axis]
            start = np.arange(self.out[axis]) * self.window.stride[axis] - pad
            end = np.minimum(start + kernel, self.size[axis] + pad)
            lines.append(kernel / (end - start))
        factors = np.outer(*lines).astype(np.float32)
        return None if (factors == 1).all() else factors[None, None]

    def with_empty_ones(self, e: Emitter, y: str, value: float) -> str:
        """Return y with `value` for the windows behind the image, if there are any."""
        if not any(self.empty):
            return y
        pads = (0, 0, 0, 0, 0, 0, int(self.empty[0]), int(self.empty[1]))
        return e.node("Pad", y, e.integers(*pads), e.floats(value))


def _maxima(e: Emitter, windows: _Windows, tops: int) -> list[str]:
    if windows.is_global and tops == 1:
        return [e.node("GlobalMaxPool", e.x)]
    values = e.nodes("MaxPool", [e.x], tops, **windows.attributes)
    y = windows.with_empty_ones(e, values[0], 0)
    if tops == 1:
        return [y]
    # Indices count through the whole blob; Caffe's mask within each channel.
    plane = windows.size[0] * windows.size[1]
    mask = e.to_floats(e.node("Mod", values[1], e.integers(plane)))
    return [y, windows.with_empty_ones(e, mask, -1)]


def _means(e: Emitter, x: str, windows: _Windows) -> str:
    if windows.is_global:
        return e.node("GlobalAveragePool", x)
    if not any(windows.window.pad):
        return e.node("AveragePool", x, **windows.attributes)
    y = e.node("AveragePool", x, **windows.attributes, count_include_pad=1)
    factors = windows.divisor_factors()
    return y if factors is None else e.node("Mul", y, e.floats(factors))


def _weighted_means(e: Emitter, windows: _Windows) -> str:
    """Return the mean of x^2 over the mean of x, 0 where that is not above 0."""
    squares, means = (_means(e, x, windows) for x in (e.node("Mul", e.x, e.x), e.x))
    zero = e.floats(0)
    return e.node("Where", e.node("Greater", means, zero), e.node("Div", squares, means), zero)


def roi_pooling(e: Emitter, layer: ROIPooling) -> list[str]:
    """MaxRoiPool; the model is then written for opset 21, the last one whose MaxRoiPool onnxruntime runs."""
    e.lower_opset(_LAST_ROI_OPSET)
    rectangles = e.bottoms[1]
    if len(e.bottom_shapes[1]) != 2:
        rectangles = e.reshape(rectangles, (-1, 5))
    return [e.node("MaxRoiPool", e.x, rectangles, pooled_shape=layer.grid, spatial_scale=layer.scale)]


def interp(e: Emitter, layer: Interp) -> list[str]:
    """Slice where pixels are cut off, then Resize: linear, with corners that stay corners."""
    x, before = e.x, -layer.param.interp_param.pad_beg
    if layer.inner != e.bottom_shapes[0][2:]:
        ends = [before + size for size in layer.inner]
        x = e.node("Slice", x, e.integers(before, before), e.integers(*ends), e.integers(2, 3))
    sizes = e.integers(*e.top_shapes[0])
    return [e.node("Resize", x, "", "", sizes, mode="linear", coordinate_transformation_mode="align_corners")]


_LAST_ROI_OPSET = 21
_AT_RANDOM = {"phase: TRAIN": "at the layer: STOCHASTIC draws pixels at random"}

OPERATORS = (
    Operator(
        "Pooling",
        pooling,
        "MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool, Mul, Pad, Mod, Cast, Greater, Div, Where",
        _AT_RANDOM,
        any_batch=True,
    ),
    Operator(
        "SPP",
        spp,
        "MaxPool, AveragePool, GlobalMaxPool, GlobalAveragePool, Mul, Greater, Div, Where, Flatten, Concat",
        _AT_RANDOM,
        any_batch=True,
    ),
    Operator("ROIPooling", roi_pooling, "Reshape, MaxRoiPool"),
    Operator("Interp", interp, "Slice, Resize"),
)
