"""Operators with parameters: convolutions, products with matrices, normalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from mgcaffe.tools.convert.importing import activations, filters, normalization
from mgcaffe.tools.convert.importing.arithmetic import product_of, sum_of, with_constant
from mgcaffe.tools.convert.importing.reductions import reduced
from mgcaffe.tools.convert.importing.shapes import reshaped
from mgcaffe.tools.convert.importing.values import Constant, Normalized, Result, Value
from mgcaffe.tools.convert.importing.windows import axes_of
from mgcaffe.tools.convert.torch_in.operation import Operation, arguments_of, every_axis, operator_name

RMS_EPS = torch.finfo(torch.float32).eps
"""What PyTorch's RMSNorm of float32 adds where it is given no number."""


def _padding(op: Operation, kernel: Sequence[int], dilation: Sequence[int]) -> list[tuple[int, int]]:
    """Return the zeros in front and behind; PyTorch has words for two cases."""
    padding = op["padding"]
    if padding == "same":
        whole = [(size - 1) * step for size, step in zip(kernel, dilation, strict=True)]
        return [(each // 2, each - each // 2) for each in whole]
    sizes = [0] * len(kernel) if padding == "valid" else every_axis(padding, len(kernel))
    return [(each, each) for each in sizes]


def convolution(op: Operation) -> Value:
    """conv1d, conv2d, conv3d: Convolution; where more zeros are at one end, also a Slice."""
    x, weight, bias = op.blob("input", padded=True), op.constant("weight"), op.constant("bias")
    assert weight is not None
    kernel = list(weight.tensor.shape[2:])
    stride, dilation = (every_axis(op[name], len(kernel)) for name in ("stride", "dilation"))
    axes = axes_of(op, x, kernel, stride, _padding(op, kernel, dilation), dilation)
    if not isinstance(weight, Normalized):
        return filters.convolution(op, x, weight, bias, axes=axes, groups=op["groups"])
    y = filters.convolution(op, x, weight, None, axes=axes, groups=op["groups"])
    return _with_factors(op, y, weight.factors, bias, 1)


def transposed_convolution(op: Operation) -> Value:
    """conv_transpose1d, 2d and 3d: Deconvolution; where more is cut off at one end, also a Slice."""
    x, weight, bias = op.blob("input"), op.constant("weight"), op.constant("bias")
    assert weight is not None
    count = weight.tensor.dim() - 2
    if len(x.shape) != count + 2:
        op.refuse(f"the input has shape {x.shape}, without a batch axis")
    pads, more, stride, dilation = (
        every_axis(op[name], count) for name in ("padding", "output_padding", "stride", "dilation")
    )
    cuts = [(pad, pad - extra) for pad, extra in zip(pads, more, strict=True)]
    if isinstance(weight, Normalized):  # whose rows are those of the input's channels
        x = op.layer("Scale", [x, weight.factors], x.shape, part="factors")
    return filters.transposed_convolution(
        op, x, weight, bias, cuts=cuts, stride=stride, dilation=dilation, groups=op["groups"]
    )


def linear(op: Operation) -> Value:
    """linear: InnerProduct over the last axis; Bias where the bias is computed."""
    x, weight, bias = op.blob("input"), op.constant("weight"), op["bias"]
    assert weight is not None
    if isinstance(bias, Constant) and not isinstance(weight, Normalized):
        return filters.inner_product(op, x, weight, bias)
    op.shape = (*x.shape[:-1], len(weight.tensor))
    y = filters.inner_product(op, x, weight, None)
    if isinstance(weight, Normalized):
        y = _with_factors(op, y, weight.factors, None, len(x.shape) - 1)
    return y if bias is None else sum_of(op, y, bias)


def _with_factors(op: Operation, y: Value, factors: Value, bias: Constant | None, axis: int) -> Value:
    """Multiply by a factor for each output, and add the bias."""
    y = op.layer("Scale", [y, factors], y.shape, part="factors", scale_param={"axis": axis} if axis != 1 else {})
    if bias is None:
        return y
    shape = (-1,) + (1,) * (len(y.shape) - axis - 1)
    return with_constant(op, "Bias", y, Constant(bias.tensor.reshape(shape), bias.name, bias.trained))


_FILTERS = ("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "linear")


def weight_norm(op: Operation) -> Constant:
    """_weight_norm, g v / |v|: of rows of filters a Scale of what v makes; along another axis one parameter.

    The factors g / |v| of rows are computed in the net: Parameter, Reduction of squares, Power, Eltwise or Scale.
    """
    v, g, axis = op.constant("v"), op.constant("g"), op["dim"]
    assert v is not None and g is not None
    reads = [(operator_name(user), arguments_of(user).get("weight")) for user in op.node.users]
    if axis == 0 and all(name in _FILTERS and weight is op.node for name, weight in reads):
        op.name = "weight_norm"
        return Normalized(v.tensor, v.name, v.trained, factors=_factors(op, v, g))
    if v.trained != g.trained:
        op.refuse("it is a parameter that is trained times one that is not; a layer's weight is trained as a whole")
    op.replaced = Constant(torch._weight_norm(v.tensor, g.tensor, axis).detach(), f"{v.name}.normalized", trained=True)
    return op.replaced


def _factors(op: Operation, v: Constant, g: Constant) -> Value:
    """Return g / |v| for each row of v."""
    rows = (len(v.tensor),)
    squares = reduced(op, op.parameter(v), "SUMSQ", range(1, v.tensor.dim()), keep_axes=False)
    inverse = op.layer("Power", [squares], rows, part="reciprocal", power_param={"power": -0.5})
    op.shape = rows
    lengths = reshaped(op, op.parameter(g), rows, "lengths")
    return product_of(op, inverse, lengths)


def batch_norm(op: Operation) -> Value:
    """batch_norm: BatchNorm, whose sums are those that PyTorch's averages are the steady state of, then Scale."""
    x, weight, bias = op.blob("input"), op.constant("weight"), op.constant("bias")
    mean, variance = op.constant("running_mean"), op.constant("running_var")
    if mean is None or variance is None:
        statistics = None
    elif op["training"]:
        op.refuse("it was exported in training mode", "call model.eval() before torch.export")
    else:
        statistics = mean, variance
    return normalization.batch_norm(op, x, (weight, bias), statistics, eps=op["eps"], momentum=op["momentum"])


def layer_norm(op: Operation) -> Value:
    """layer_norm: LayerNorm."""
    x, weight, bias = op.blob("input"), op.constant("weight"), op.constant("bias")
    return normalization.layer_norm(op, x, weight, bias, eps=op["eps"], axes=len(op["normalized_shape"]))


def rms_norm(op: Operation) -> Value:
    """rms_norm: Power, Reduction, Power, Scale, and Scale by the weight; Pooling and Flatten over H and W."""
    eps = RMS_EPS if op["eps"] is None else op["eps"]
    return normalization.rms_norm(op, op.blob("input"), op["weight"], eps=eps, axes=len(op["normalized_shape"]))


def group_norm(op: Operation) -> Value:
    """group_norm: LayerNorm over the groups as one axis each, and Scale."""
    x, weight, bias = op.blob("input"), op.constant("weight"), op.constant("bias")
    return normalization.group_norm(op, x, op["num_groups"], weight, bias, eps=op["eps"])


def instance_norm(op: Operation) -> Value:
    """instance_norm: LayerNorm over the image, and Scale."""
    x, weight, bias = op.blob("input"), op.constant("weight"), op.constant("bias")
    if not op["use_input_stats"] or op["running_mean"] is not None:
        op.refuse("it has running averages of single images, which no layer has", "track_running_stats=False")
    return normalization.instance_norm(op, x, weight, bias, eps=op["eps"])


def prelu(op: Operation) -> Value:
    """prelu: PReLU."""
    weight = op.constant("weight")
    assert weight is not None
    return activations.prelu(op, op.blob(), weight)


OPERATORS: Mapping[str, Callable[[Operation], Result]] = {
    "conv1d": convolution,
    "conv2d": convolution,
    "conv3d": convolution,
    "conv_transpose1d": transposed_convolution,
    "conv_transpose2d": transposed_convolution,
    "conv_transpose3d": transposed_convolution,
    "linear": linear,
    "_weight_norm": weight_norm,
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "prelu": prelu,
}
