"""Operators with parameters: convolutions, products with matrices, normalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mgcaffe.tools.convert.importing import activations, filters, normalization
from mgcaffe.tools.convert.importing.values import Result, Value
from mgcaffe.tools.convert.importing.windows import axes_of
from mgcaffe.tools.convert.torch_in.operation import Operation, every_axis


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
    return filters.convolution(op, x, weight, bias, axes=axes, groups=op["groups"])


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
    return filters.transposed_convolution(
        op, x, weight, bias, cuts=cuts, stride=stride, dilation=dilation, groups=op["groups"]
    )


def linear(op: Operation) -> Value:
    """linear: InnerProduct over the last axis."""
    x, weight, bias = op.blob("input"), op.constant("weight"), op.constant("bias")
    assert weight is not None
    return filters.inner_product(op, x, weight, bias)


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
    "batch_norm": batch_norm,
    "layer_norm": layer_norm,
    "group_norm": group_norm,
    "instance_norm": instance_norm,
    "prelu": prelu,
}
