"""Layers with weights: convolutions, products with matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.values import Constant, Value


def convolution(
    op: Operation,
    kind: str,
    x: Value,
    weight: Constant,
    bias: Constant | None,
    *,
    outputs: int,
    pad: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """Add a Convolution or Deconvolution.

    Args:
        op: the operator.
        kind: which of the two.
        x: (N, C, ...); the zeros around it are added to `pad`.
        weight: (outputs, C / groups, ...), for Deconvolution (C, outputs / groups, ...).
        bias: (outputs), or None.
        outputs: how many channels come out.
        pad: zeros at both ends of each spatial axis.
        stride, dilation: one a spatial axis.
        groups: how many groups of channels there are.
    """
    kernel = list(weight.tensor.shape[2:])
    if len(x.shape) != len(kernel) + 2:
        op.refuse(f"the input has shape {x.shape}, without a batch axis")
    if x.pad:
        pad = [one + two for one, two in zip(pad, x.pad, strict=True)]
    param: dict[str, Any] = {"num_output": outputs}
    if bias is None:
        param["bias_term"] = False
    if any(pad):
        param.update(_window("pad", pad))
    param.update(_window("kernel_size", kernel))
    if groups != 1:
        param["group"] = groups
    for name, sizes in (("stride", stride), ("dilation", dilation)):
        if set(sizes) != {1}:
            param.update(_window(name, sizes))
    return op.layer(kind, [x], blobs=[weight, *([bias] if bias else [])], convolution_param=param)


def _window(name: str, sizes: Sequence[int]) -> dict[str, Any]:
    """Return a field of convolution_param with one size for all axes, or with one each."""
    return {name: [sizes[0]] if len(set(sizes)) == 1 else list(sizes)}


def inner_product(op: Operation, x: Value, weight: Constant, bias: Constant | None) -> Value:
    """Add an InnerProduct over the last axis; the weight is (outputs, inputs)."""
    if len(x.shape) < 2:
        op.refuse(f"the input has shape {x.shape}, without a batch axis")
    param: dict[str, Any] = {"num_output": weight.tensor.shape[0]}
    if bias is None:
        param["bias_term"] = False
    if len(x.shape) != 2:
        param["axis"] = len(x.shape) - 1
    return op.layer("InnerProduct", [x], blobs=[weight, *([bias] if bias else [])], inner_product_param=param)
