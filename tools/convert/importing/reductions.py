"""Sums, means and largest values over axes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.pooling import global_pooled
from mgcaffe.tools.convert.importing.shapes import permuted, reshaped
from mgcaffe.tools.convert.importing.values import Value


def reduced(op: Operation, x: Value, operation: str, axes: Iterable[int], *, keep_axes: bool) -> Value:
    """Reduce over axes: a mean over H and W by a global Pooling, else by a Reduction, if need be behind a Permute.

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
    if axes[0] == 0 and ((op.first_is_batch and not op.made.is_fixed(x)) or len(axes) == rank):
        op.refuse("it reduces the batch axis, over which no layer but a loss goes")
    kept = [axis for axis in range(rank) if axis not in axes]
    shape = tuple(x.shape[axis] for axis in kept)
    param: dict[str, Any] = {"operation": operation, "axis": len(kept)}
    y = op.layer("Reduction", [permuted(op, x, kept + axes, "order")], shape, reduction_param=param)
    if not keep_axes:
        return y
    if kept == list(range(axes[0])):  # any sizes
        dims = [0] * len(kept) + [1] * len(axes)
        return op.layer("Reshape", [y], part="keepdim", reshape_param={"shape": {"dim": dims}})
    return reshaped(op, y, tuple(1 if axis in axes else size for axis, size in enumerate(x.shape)), "keepdim")


def root_of(op: Operation, squares: Value) -> Value:
    """Take the root of a sum of squares: a Power.

    It adds 1e-30 first, which changes no float32 from 1e-22 on, so that the gradient at zeros is 0, as in PyTorch, and
    not infinite.
    """
    return op.layer("Power", [squares], squares.shape, part="root", power_param={"power": 0.5, "shift": 1e-30})


def largest_of(op: Operation, x: Value, axes: Iterable[int], *, keep_axes: bool, smallest: bool = False) -> Value:
    """Find the largest values over axes, or the smallest: a global Pooling MAX of images that hold them.

    Args:
        op: the operator.
        x: the value.
        axes: which.
        keep_axes: they stay, with size 1.
        smallest: the smallest ones: the largest of the negated values, negated.
    """
    rank = len(x.shape)
    axes = sorted(axis % rank for axis in axes)
    if axes[0] == 0 and ((op.first_is_batch and not op.made.is_fixed(x)) or len(axes) == rank):
        op.refuse("it reduces the batch axis, over which no layer but a loss goes")
    kept = [axis for axis in range(rank) if axis not in axes]
    wanted = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape) if keep_axes or axis in kept)
    if smallest:
        x = op.layer("Power", [x], x.shape, part="negated", power_param={"scale": -1})
    if rank != 4 or axes != [2, 3]:
        x = permuted(op, x, kept + axes, "order")
        outer, inner = (math.prod(x.shape[start:end]) for start, end in ((1, len(kept)), (len(kept), rank)))
        x = reshaped(op, x, (x.shape[0], outer, 1, inner), "image")
    y = global_pooled(op, x, "MAX")
    if smallest:
        y = op.layer("Power", [y], y.shape, part="back", power_param={"scale": -1})
    return reshaped(op, y, wanted, "flatten")
