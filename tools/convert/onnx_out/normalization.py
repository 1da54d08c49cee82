"""Normalization layers: how each is written in ONNX."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layers.batch_norm import BatchNorm
from mgcaffe.engine.layers.bn import BN
from mgcaffe.engine.layers.layer_norm import LayerNorm
from mgcaffe.engine.layers.lrn import LRN
from mgcaffe.engine.layers.mvn import MVN
from mgcaffe.engine.layers.normalize import Normalize
from mgcaffe.tools.convert.onnx_out.emitter import Emitter, Operator


def batch_norm(e: Emitter, layer: BatchNorm) -> list[str]:
    """BatchNormalization with the stored sums over blob 2; by the batch's own statistics, the formula."""
    own = (3, 4) if layer.scale_bias else ()
    if not layer.use_global:
        return [_by_batch(e, layer.eps, own)]
    means, variances, total = (parameter.data for parameter in layer.parameters[:3])
    factor = torch.where(total == 0, torch.zeros_like(total), 1 / total)
    statistics = [e.computed_weight(number, sums * factor) for number, sums in enumerate((means, variances))]
    ones = torch.ones(layer.channels).numpy()
    scale, bias = (e.weight(number) for number in own) if own else (e.floats(ones), e.floats(0 * ones))
    return [e.node("BatchNormalization", e.x, scale, bias, *statistics, epsilon=layer.eps)]


def bn(e: Emitter, layer: BN) -> list[str]:
    """BatchNormalization with the moving averages; for SegNet's the batch's own, or slope and bias alone."""
    if layer.uses_batch:
        return [_by_batch(e, layer.eps, (0, 1))]
    if layer.moving:
        arrays = (e.weight(number, (layer.channels,)) for number in range(4))
        return [e.node("BatchNormalization", e.x, *arrays, epsilon=layer.eps)]
    return [_per_channel(e, e.x, (0, 1))]


def _by_batch(e: Emitter, eps: float, own: Sequence[int]) -> str:
    """Return x with mean 0 and variance 1 over all axes but the channels, then scaled and shifted."""
    others = [axis for axis in range(len(e.bottom_shapes[0])) if axis != 1]
    centred, variance = _centred(e, e.x, others)
    y = e.node("Div", centred, e.node("Sqrt", e.scaled(variance, 1, eps)))
    return _per_channel(e, y, own)


def _centred(e: Emitter, x: str, axes: Sequence[int]) -> tuple[str, str]:
    """Return the deviations of x from the mean over axes, and their mean square."""
    centred = e.node("Sub", x, e.sums(x, axes, operator="ReduceMean"))
    return centred, e.sums(e.node("Mul", centred, centred), axes, operator="ReduceMean")


def _per_channel(e: Emitter, y: str, own: Sequence[int]) -> str:
    """Return y scaled and shifted by the parameters of these numbers (or as it is, for none), one value a channel."""
    shape = e.bottom_shapes[0]
    for operator, number in zip(("Mul", "Add"), own, strict=False):
        y = e.node(operator, y, e.weight(number, (shape[1], *[1] * (len(shape) - 2))))
    return y


def lrn(e: Emitter, layer: LRN) -> list[str]:
    """LRN across channels, which is Caffe's; within a channel by the mean of the squares (AveragePool) and a power."""
    if layer.across:
        fields = {"size": layer.size, "alpha": layer.alpha, "beta": layer.beta, "bias": layer.k}
        return [e.node("LRN", e.x, **fields)]
    margin = layer.size // 2
    windows = {"kernel_shape": [layer.size] * 2, "strides": [1, 1], "pads": [margin] * 4, "count_include_pad": 1}
    scale = e.scaled(e.node("AveragePool", e.node("Mul", e.x, e.x), **windows), layer.alpha, 1)
    return [e.node("Mul", e.x, e.node("Pow", scale, e.floats(-layer.beta)))]


def mvn(e: Emitter, layer: MVN) -> list[str]:
    """Deviations from the mean, over the root of their mean square plus eps (which ONNX's own operator has inside)."""
    x, given = e.x, len(layer.bottom_shape)
    if added := len(layer.top_shape) - given:
        x = e.reshape(x, [0] * given + [1] * added)
    if not layer.divides:
        return [e.node("Sub", x, e.sums(x, layer.axes, operator="ReduceMean"))]
    centred, variance = _centred(e, x, layer.axes)
    return [e.node("Div", centred, e.scaled(e.node("Sqrt", variance), 1, layer.eps))]


def layer_norm(e: Emitter, layer: LayerNorm) -> list[str]:
    """LayerNormalization, with ones where the layer has no scale of its own."""
    shape = tuple(layer.normalized)
    axis = len(e.bottom_shapes[0]) - len(shape)
    own = [e.weight(number) for number in range(len(layer.parameters))]
    scale_and_bias = own or [e.floats(torch.ones(shape).numpy())]
    return [e.node("LayerNormalization", e.x, *scale_and_bias, axis=axis, epsilon=layer.eps)]


def normalize(e: Emitter, layer: Normalize) -> list[str]:
    """X over the root of the sum of squares plus eps, times the learned factors."""
    squares = e.sums(e.x, layer.summed, operator="ReduceSumSquare")
    y = e.node("Div", e.x, e.node("Sqrt", e.scaled(squares, 1, layer.eps)))
    factors = layer.parameters[0].shape
    shape = (*factors, *[1] * (len(e.bottom_shapes[0]) - 2)) if factors else ()
    return [e.node("Mul", y, e.weight(0, shape))]


_FORMULA = "ReduceMean, Sub, Mul, Add, Sqrt, Div"

OPERATORS = (
    Operator(
        "BatchNorm",
        batch_norm,
        f"BatchNormalization, {_FORMULA}",
        without_effect=("moving_average_fraction",),
        any_batch=True,
    ),
    Operator("BN", bn, f"BatchNormalization, {_FORMULA}", without_effect=("momentum", "frozen"), any_batch=True),
    Operator("LRN", lrn, "LRN, Mul, AveragePool, Add, Pow", any_batch=True),
    Operator("MVN", mvn, f"{_FORMULA}, Reshape", any_batch=True),
    Operator("LayerNorm", layer_norm, "LayerNormalization", any_batch=True),
    Operator("Normalize", normalize, "ReduceSumSquare, Add, Sqrt, Div, Mul", any_batch=True),
)
