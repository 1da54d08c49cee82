"""Operators with parameters: convolutions, products with matrices, normalization."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from mgcaffe.tools.convert.torch_in.operation import Operation
from mgcaffe.tools.convert.torch_in.values import Constant, Result, Value


def _window(name: str, sizes: Sequence[int]) -> dict[str, Any]:
    """Return a field of convolution_param with one size for all axes, or with one each."""
    return {name: [sizes[0]] if len(set(sizes)) == 1 else list(sizes)}


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
    if x.pad:
        pad = [one + two for one, two in zip(pad, x.pad, strict=True)]
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
    kernel = list(weight.tensor.shape[2:])
    if len(x.shape) != len(kernel) + 2:
        op.refuse(f"the input has shape {x.shape}, without a batch axis")
    stride, dilation = (_every_axis(op[name], len(kernel)) for name in ("stride", "dilation"))
    param: dict[str, Any] = {"num_output": outputs}
    if bias is None:
        param["bias_term"] = False
    if any(pad):
        param.update(_window("pad", pad))
    param.update(_window("kernel_size", kernel))
    if op["groups"] != 1:
        param["group"] = op["groups"]
    for name, sizes in (("stride", stride), ("dilation", dilation)):
        if set(sizes) != {1}:
            param.update(_window(name, sizes))
    return op.layer(kind, [x], blobs=[weight, *([bias] if bias else [])], convolution_param=param)


def linear(op: Operation) -> Value:
    """linear: InnerProduct over the last axis."""
    x, weight, bias = op.blob("input"), op.constant("weight"), op.constant("bias")
    assert weight is not None
    if len(x.shape) < 2:
        op.refuse(f"the input has shape {x.shape}, without a batch axis")
    param: dict[str, Any] = {"num_output": weight.tensor.shape[0]}
    if bias is None:
        param["bias_term"] = False
    if len(x.shape) != 2:
        param["axis"] = len(x.shape) - 1
    return op.layer("InnerProduct", [x], blobs=[weight, *([bias] if bias else [])], inner_product_param=param)


def batch_norm(op: Operation) -> Value:
    """batch_norm: BatchNorm, whose sums are those that PyTorch's averages are the steady state of, then Scale."""
    x, weight, bias = op.blob("input"), op.constant("weight"), op.constant("bias")
    mean, variance = op.constant("running_mean"), op.constant("running_var")
    param: dict[str, Any] = {"eps": op["eps"]}
    if mean is None or variance is None:
        param["use_global_stats"] = False
        nothing = torch.zeros(x.shape[1])
        blobs = [Constant(nothing), Constant(nothing), Constant(torch.zeros(1))]
    elif op["training"]:
        op.refuse("it was exported in training mode", "call model.eval() before torch.export")
    else:
        blobs = _sums(mean, variance, op["momentum"])
        param["moving_average_fraction"] = 1 - op["momentum"]
    y = op.layer("BatchNorm", [x], blobs=blobs, batch_norm_param=param)
    if weight is None:
        return y
    scale = {"bias_term": True} if bias else {}
    return op.layer("Scale", [y], part="scale", blobs=[weight, *([bias] if bias else [])], scale_param=scale)


def _sums(mean: Constant, variance: Constant, momentum: float) -> list[Constant]:
    """Return the blobs of BatchNorm that go on as PyTorch's averages do.

    With f = 1 - momentum and the sum of weights 1 / momentum, W2 becomes f / momentum + 1 = 1 / momentum again, and
    W0 / W2 becomes f mean + momentum times the batch's.
    """
    weight = 1 / momentum if momentum else 1.0
    return [
        Constant(mean.tensor.double() * weight, mean.name),
        Constant(variance.tensor.double() * weight, variance.name),
        Constant(torch.tensor([weight]), mean.name and f"{mean.name}.weight"),
    ]


def layer_norm(op: Operation) -> Value:
    """layer_norm: LayerNorm."""
    x, weight, bias = op.blob("input"), op.constant("weight"), op.constant("bias")
    param: dict[str, Any] = {"eps": op["eps"]}
    if len(op["normalized_shape"]) != 1:
        param["axis"] = -len(op["normalized_shape"])
    if weight is None:
        if bias is not None:
            op.refuse("it has a bias but no scale, which LayerNorm can't")
        param["affine"] = False
    elif bias is None:
        param["bias_term"] = False
    blobs = [each for each in (weight, bias) if each is not None]
    return op.layer("LayerNorm", [x], blobs=blobs, layer_norm_param=param)


def prelu(op: Operation) -> Value:
    """prelu: PReLU."""
    weight = op.constant("weight")
    assert weight is not None
    shared = weight.tensor.numel() == 1
    blob = Constant(weight.tensor.reshape(()) if shared else weight.tensor, weight.name, weight.trained)
    return op.layer("PReLU", [op.blob()], blobs=[blob], prelu_param={"channel_shared": True} if shared else {})


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
