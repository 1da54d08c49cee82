"""Sums, means, norms, largest values and the like over axes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from mgcaffe.tools.convert.importing.arithmetic import sum_of
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
        return y if keep_axes else op.layer("Flatten", [y], x.shape[:2], part="flatten")
    if axes[0] == 0 and ((op.first_is_batch and not op.made.is_fixed(x)) or len(axes) == rank):
        op.refuse("it reduces the batch axis, over which no layer but a loss goes")
    kept = [axis for axis in range(rank) if axis not in axes]
    shape = tuple(x.shape[axis] for axis in kept)
    param: dict[str, Any] = {"operation": operation, "axis": len(kept)}
    y = op.layer("Reduction", [permuted(op, x, kept + axes, "order")], shape, reduction_param=param)
    if not keep_axes:
        return y
    wanted = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    if kept == list(range(axes[0])):  # any sizes
        dims = [0] * len(kept) + [1] * len(axes)
        return op.layer("Reshape", [y], wanted, part="keepdim", reshape_param={"shape": {"dim": dims}})
    return reshaped(op, y, wanted, "keepdim")


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


def norm_of(op: Operation, x: Value, order: float, axes: Iterable[int], *, keep_axes: bool) -> Value:
    """Return a norm: a Reduction of squares and Power, or of absolute values; of order inf the largest of these.

    Args:
        op: the operator.
        x: the value.
        order: 1, 2, inf, or -inf for the smallest.
        axes: which.
        keep_axes: they stay, with size 1.
    """
    if math.isinf(order):
        sizes = op.layer("AbsVal", [x], x.shape, part="absolute")
        return largest_of(op, sizes, axes, keep_axes=keep_axes, smallest=order < 0)
    if order not in (1, 2):
        op.refuse(f"it is a norm of order {order}; Reduction adds squares or absolute values")
    y = reduced(op, x, "SUMSQ" if order == 2 else "ASUM", axes, keep_axes=keep_axes)
    return root_of(op, y) if order == 2 else y


def log_of_sum(op: Operation, x: Value, axes: Iterable[int], *, keep_axes: bool) -> Value:
    """Return the logarithm of the sum of exponentials: those of x less its largest values, which are added again.

    What is infinite is NaN, as the difference of such is. The gradient is x's softmax to rounding: what goes to the
    largest values cancels.

    Args:
        op: the operator.
        x: the value.
        axes: which.
        keep_axes: they stay, with size 1.
    """
    axes = list(axes)
    with op.step("largest", x.shape):
        largest = largest_of(op, x, axes, keep_axes=True)
    with op.step("difference", x.shape):
        difference = sum_of(op, x, largest, -1)
    powers = op.layer("Exp", [difference], x.shape, part="exponentials")
    with op.step("sum", x.shape):
        total = reduced(op, powers, "SUM", axes, keep_axes=keep_axes)
    logarithm = op.layer("Log", [total], total.shape, part="logarithm")
    op.shape = total.shape
    return sum_of(op, logarithm, reshaped(op, largest, total.shape, "largest"))


def variance_of(
    op: Operation, x: Value, axes: Iterable[int], *, correction: float, keep_axes: bool, root: bool = False
) -> tuple[Value, Value]:
    """Return variance and mean: a Reduction of the squares of differences from the mean, and a Power for the divisor.

    Args:
        op: the operator.
        x: the value.
        axes: which.
        correction: what the divisor is less than the number of values.
        keep_axes: they stay, with size 1.
        root: the standard deviation instead, whose gradient at 0 is 0, as in PyTorch.
    """
    axes = list(axes)
    divisor = math.prod(x.shape[axis] for axis in axes) - correction
    if divisor <= 0:
        op.refuse(f"it divides by the number of values less {correction:g}, which is {divisor:g}")
    with op.step("mean", x.shape):
        mean = reduced(op, x, "MEAN", axes, keep_axes=True)
    with op.step("difference", x.shape):
        difference = sum_of(op, x, mean, -1)
    with op.step("squares", x.shape):
        squares = reduced(op, difference, "SUMSQ", axes, keep_axes=keep_axes)
    y, factor = (root_of(op, squares), divisor**-0.5) if root else (squares, 1 / divisor)
    op.multiply_by(factor)
    y = op.layer("Power", [y], y.shape, power_param={"scale": factor})
    return y, reshaped(op, mean, y.shape, "mean_alone")
