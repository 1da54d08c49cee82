"""Layers with weights: convolutions, products with matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.values import Constant, Shape, Value
from mgcaffe.tools.convert.importing.windows import Axis, unpadded, with_windows


def convolution(
    op: Operation, x: Value, weight: Constant, bias: Constant | None, *, axes: Sequence[Axis], groups: int
) -> Value:
    """Add a Convolution; where more zeros are at one end, also a Slice.

    Args:
        op: the operator; its shape is that of the result.
        x: (N, C, ...); the zeros around it are those of `axes`.
        weight: (outputs, C / groups, ...).
        bias: (outputs), or None.
        axes: the windows along each spatial axis.
        groups: how many groups of channels there are.
    """
    pads, firsts = zip(*(axis.symmetric() for axis in axes), strict=True)
    whole = [replace(axis, begin=pad, end=pad).count for axis, pad in zip(axes, pads, strict=True)]
    stride, dilation = [axis.stride for axis in axes], [axis.dilation for axis in axes]

    def make(shape: Shape) -> Value:
        op.shape = shape
        param = _fields(weight, bias, shape[1], pads, stride, dilation, groups)
        return op.layer("Convolution", [unpadded(x)], blobs=_blobs(weight, bias), convolution_param=param)

    return with_windows(op, firsts, whole, make)


def transposed_convolution(
    op: Operation,
    x: Value,
    weight: Constant,
    bias: Constant | None,
    *,
    cuts: Sequence[tuple[int, int]],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """Add a Deconvolution; where more is cut off at one end, also a Slice.

    Args:
        op: the operator; its shape is that of the result.
        x: (N, C, ...).
        weight: (C, outputs / groups, ...).
        bias: (outputs), or None.
        cuts: what is cut off in front and behind of all pixels that the windows reach, for each spatial axis.
        stride, dilation: one a spatial axis.
        groups: how many groups of channels there are.
    """
    if any(behind < 0 for _, behind in cuts):
        op.refuse("its output_padding adds rows that no pixel reaches, which Deconvolution can't")
    pads = [min(pair) for pair in cuts]
    firsts = [front - pad for (front, _), pad in zip(cuts, pads, strict=True)]
    whole = [
        size + front + behind - 2 * pad
        for size, (front, behind), pad in zip(op.shape[2:], cuts, pads, strict=True)
    ]  # fmt: skip

    def make(shape: Shape) -> Value:
        op.shape = shape
        param = _fields(weight, bias, shape[1], pads, stride, dilation, groups)
        return op.layer("Deconvolution", [x], blobs=_blobs(weight, bias), convolution_param=param)

    return with_windows(op, firsts, whole, make)


def _blobs(weight: Constant, bias: Constant | None) -> list[Constant]:
    return [weight, *([bias] if bias else [])]


def _fields(
    weight: Constant,
    bias: Constant | None,
    outputs: int,
    pad: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> dict[str, Any]:
    """Return convolution_param; what has its default is left away."""
    param: dict[str, Any] = {"num_output": outputs}
    if bias is None:
        param["bias_term"] = False
    if any(pad):
        param["pad"] = once(pad)
    param["kernel_size"] = once(weight.tensor.shape[2:])
    if groups != 1:
        param["group"] = groups
    for name, sizes in (("stride", stride), ("dilation", dilation)):
        if set(sizes) != {1}:
            param[name] = once(sizes)
    return param


def once(sizes: Sequence[int]) -> list[int]:
    """Return sizes as a field of convolution_param has them: one for all axes, or one each."""
    return [sizes[0]] if len(set(sizes)) == 1 else list(sizes)


def inner_product(op: Operation, x: Value, weight: Constant, bias: Constant | None, part: str = "") -> Value:
    """Add an InnerProduct over the last axis; the weight is (outputs, inputs)."""
    if len(x.shape) < 2:
        op.refuse(f"the input has shape {x.shape}, without a batch axis")
    param: dict[str, Any] = {"num_output": weight.tensor.shape[0]}
    if bias is None:
        param["bias_term"] = False
    if len(x.shape) != 2:
        param["axis"] = len(x.shape) - 1
    return op.layer("InnerProduct", [x], part=part, blobs=_blobs(weight, bias), inner_product_param=param)
