"""Pooling, and zeros around an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mgcaffe.engine.kernels.pooling import Window
from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.values import Value


def pooled(op: Operation, x: Value, pool: str, window: Window) -> Value:
    """Add a Pooling whose windows are also Caffe's, which the operator's shape shows."""
    if len(x.shape) != 4:
        op.refuse(f"the input has shape {x.shape}; Pooling takes (N, C, H, W)")
    if window.output_size(x.shape[2:]) != op.shape[2:]:
        op.refuse(
            f"its windows are not Caffe's: the output is {op.shape[2:]} instead of {window.output_size(x.shape[2:])}"
        )
    if any(pad >= kernel for pad, kernel in zip(window.pad, window.kernel, strict=True)):
        op.refuse("its padding is not smaller than its kernel, which Pooling can't")
    param: dict[str, Any] = {"pool": pool}
    _sides(param, "kernel_size", "kernel", window.kernel, None)
    _sides(param, "stride", "stride", window.stride, 1)
    _sides(param, "pad", "pad", window.pad, 0)
    if not window.ceil and window.stride != (1, 1):
        param["round_mode"] = "FLOOR"
    return op.layer("Pooling", [x], pooling_param=param)


def _sides(param: dict[str, Any], field: str, short: str, sizes: tuple[int, int], neutral: int | None) -> None:
    """Put a field into pooling_param, once or for rows and columns, unless it has its default."""
    if sizes[0] != sizes[1]:
        param.update({f"{short}_h": sizes[0], f"{short}_w": sizes[1]})
    elif sizes[0] != neutral:
        param[field] = sizes[0]


def global_pooled(op: Operation, x: Value, pool: str) -> Value:
    """Add a Pooling with one value for each channel of (N, C, H, W)."""
    return op.layer("Pooling", [x], (*x.shape[:2], 1, 1), pooling_param={"pool": pool, "global_pooling": True})


def zero_padded(op: Operation, x: Value, pairs: Sequence[tuple[int, int]]) -> Value:
    """Return the value with zeros around it that the next layer has to add; `pairs` are of its last axes, in order."""
    if not any(any(pair) for pair in pairs):
        return x
    spatial = len(x.shape) - 2
    if any(any(pair) for pair in pairs[: max(0, len(pairs) - spatial)]):
        op.refuse("it pads an axis that is not spatial, which no layer does")
    if any(one != two or one < 0 for one, two in pairs):
        op.refuse("it pads more at one side than at the other, which Caffe's layers can't")
    pad = [0] * (spatial - len(pairs)) + [one for one, _ in pairs]
    return replace(x, pad=tuple(pad[-spatial:]))
