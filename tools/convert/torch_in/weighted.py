"""Operators with parameters: convolutions, products with matrices, normalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mgcaffe.tools.convert.importing import activations, filters, normalization
from mgcaffe.tools.convert.importing.values import Constant, Result, Value
from mgcaffe.tools.convert.torch_in.operation import Operation


def _every_axis(sizes: Any, axes: int) -> list[int]:
    given: list[int] = [sizes] if isinstance(sizes, int) else list(sizes)
    return given * axes if len(given) == 1 else given


def _padding(op: Operation, kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Return the zeros at each side; PyTorch has words for two cases."""
    padding = op["padding"]
    if padding == "valid":
        return [0] * len(kernel)
    if padding != "same":
        return _every_axis(padding, len(kernel))
    whole = [(size - 1) * step for size, step in zip(kernel, dilation, strict=True)]
    if any(each % 2 for each in whole):
        op.refuse("padding 'same' of an even kernel puts more zeros behind than before, which Caffe can't")
    return [each // 2 for each in whole]


def convolution(op: Operation) -> Value:
    """conv1d, conv2d, conv3d: Convolution."""
    x, weight, bias = op.blob("input", padded=True), op.constant("weight"), op.constant("bias")
    assert weight is not None
    kernel = list(weight.tensor.shape[2:])
    dilation = _every_axis(op["dilation"], len(kernel))
    pad = _padding(op, kernel, dilation)
    return _convolution(op, "Convolution", x, weight, bias, weight.tensor.shape[0], pad)


def transposed_convolution(op: Operation) -> Value:
    """conv_transpose1d, 2d and 3d: Deconvolution."""
    x, weight, bias = op.blob("input"), op.constant("weight"), op.constant("bias")
    assert weight is not None
    axes = weight.tensor.dim() - 2
    if any(_every_axis(op["output_padding"], axes)):
        op.refuse("output_padding is not among what Deconvolution can do")
    outputs = weight.tensor.shape[1] * op["groups"]
    return _convolution(op, "Deconvolution", x, weight, bias, outputs, _every_axis(op["padding"], axes))


def _convolution(
    op: Operation, kind: str, x: Value, weight: Constant, bias: Constant | None, outputs: int, pad: Sequence[int]
) -> Value:
    axes = weight.tensor.dim() - 2
    stride, dilation = (_every_axis(op[name], axes) for name in ("stride", "dilation"))
    return filters.convolution(
        op, kind, x, weight, bias, outputs=outputs, pad=pad, stride=stride, dilation=dilation, groups=op["groups"]
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
    "prelu": prelu,
}
