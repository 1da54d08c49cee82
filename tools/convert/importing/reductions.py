"""Sums, means and largest values over axes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.pooling import global_pooled
from mgcaffe.tools.convert.importing.shapes import reshaped
from mgcaffe.tools.convert.importing.values import Value


def reduced(op: Operation, x: Value, operation: str, axes: Iterable[int], *, keep_axes: bool) -> Value:
    """Reduce over axes: a mean over H and W by a global Pooling, else over the last axes by a Reduction.

    Args:
        op: the operator.
        x: the value.
        operation: of reduction_param.
        axes: which.
        keep_axes: they stay, with size 1.
    """
    rank = len(x.shape)
    axes = sorted(axis % rank for axis in axes)
    if operation == "MEAN" and rank == 4 and axes == [2, 3]:
        y = global_pooled(op, x, "AVE")
        return y if keep_axes else op.layer("Flatten", [y], part="flatten")
    if axes != list(range(axes[0], rank)):
        op.refuse(f"it reduces axes {axes} of {rank}; Reduction takes all behind one")
    if axes[0] == 0:
        op.refuse("it reduces the batch axis, over which no layer but a loss goes")
    param: dict[str, Any] = {"operation": operation, "axis": axes[0]}
    y = op.layer("Reduction", [x], x.shape[: axes[0]], reduction_param=param)
    if not keep_axes:
        return y
    return op.layer("Reshape", [y], part="keepdim", reshape_param={"shape": {"dim": [0] * axes[0] + [1] * len(axes)}})


def largest_of(op: Operation, x: Value, axes: Iterable[int], *, keep_axes: bool) -> Value:
    """Find the largest values over H and W by a global Pooling; other axes are refused."""
    if len(x.shape) != 4 or sorted(axis % 4 for axis in axes) != [2, 3]:
        op.refuse("it is not over H and W; no layer finds the largest value of other axes")
    y = global_pooled(op, x, "MAX")
    return y if keep_axes else reshaped(op, y, x.shape[:2], "flatten")
