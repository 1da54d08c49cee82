"""Layers that move values: other shapes, other orders, parts, joining."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any

from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.values import Shape, Value


def reshaped(op: Operation, x: Value, shape: Shape, part: str = "") -> Value:
    """Give a value another shape: Reshape, or Flatten where it is that."""
    if shape == x.shape:
        return x
    kept = bool(shape) and x.shape[:1] == shape[:1]
    if kept and len(shape) == 2 and len(x.shape) > 2:
        return op.layer("Flatten", [x], shape, part=part)
    dims = [0 if kept else -1, *shape[1:]] if shape else []
    if not kept and math.prod(shape[1:]) == 0:
        op.refuse(f"shape {shape} has no values")
    return op.layer("Reshape", [x], shape, part=part, reshape_param={"shape": {"dim": dims}})


def flattened(op: Operation, x: Value, first: int, last: int) -> Value:
    """Make one axis of those from `first` to `last`."""
    if (first, last) == (0, len(x.shape) - 1):
        return reshaped(op, x, (math.prod(x.shape),))
    neutral = len(x.shape) - 1
    param = {name: axis for name, axis, usual in (("axis", first, 1), ("end_axis", last, neutral)) if axis != usual}
    return op.layer("Flatten", [x], flatten_param=param)


def permuted(op: Operation, x: Value, order: Sequence[int], part: str = "") -> Value:
    """Put axes into another order."""
    if list(order) == sorted(order):
        return x
    return op.layer("Permute", [x], tuple(x.shape[axis] for axis in order), part=part, permute_param={"order": order})


def tiled(op: Operation, x: Value, repeats: Sequence[int]) -> Value:
    """Repeat a value so often along each axis: a Tile for each that is not 1."""
    for axis, count in enumerate(repeats):
        if count == 1:
            continue
        if count < 1 or axis == 0:
            op.refuse(f"it repeats axis {axis} {count} times; Tile repeats other axes than the batch, once or more")
        shape = (*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :])
        x = op.layer("Tile", [x], shape, tile_param={"tiles": count, **({"axis": axis} if axis != 1 else {})})
    return x


def with_rank(op: Operation, x: Value, rank: int) -> Value:
    """Put axes of size 1 in front of a value until it has that many axes."""
    return reshaped(op, x, (1,) * (rank - len(x.shape)) + x.shape)


def expanded(op: Operation, x: Value, shape: Shape) -> Value:
    """Broadcast a value to a shape that it fits: Tile along the axes of size 1 that become longer."""
    x = with_rank(op, x, len(shape))
    return tiled(op, x, [size // own for size, own in zip(shape, x.shape, strict=True)])


def depth_to_space(op: Operation, x: Value, size: int, *, blocks_first: bool) -> Value:
    """Make blocks of pixels of the channels: (N, C size^2, H, W) becomes (N, C, H size, W size).

    Args:
        op: the operator.
        x: the value.
        size: rows and columns of a block.
        blocks_first: the channels are (size, size, C), else (C, size, size).
    """
    batch, channels, rows, columns = x.shape
    deep = channels // (size * size)
    if blocks_first:
        apart, order = (batch, size, size, deep, rows, columns), [0, 3, 4, 1, 5, 2]
    else:
        apart, order = (batch, deep, size, size, rows, columns), [0, 1, 4, 2, 5, 3]
    return _rearranged(op, x, apart, order, (batch, deep, rows * size, columns * size))


def space_to_depth(op: Operation, x: Value, size: int, *, blocks_first: bool) -> Value:
    """Make channels of blocks of pixels, which `depth_to_space` takes back; the arguments are the same."""
    batch, channels, rows, columns = x.shape
    apart = (batch, channels, rows // size, size, columns // size, size)
    order = [0, 3, 5, 1, 2, 4] if blocks_first else [0, 1, 3, 5, 2, 4]
    return _rearranged(op, x, apart, order, (batch, channels * size * size, rows // size, columns // size))


def _rearranged(op: Operation, x: Value, apart: Shape, order: Sequence[int], whole: Shape) -> Value:
    return reshaped(op, permuted(op, reshaped(op, x, apart, "apart"), order, "order"), whole)


def shuffled(op: Operation, x: Value, groups: int) -> Value:
    """Add a ShuffleChannel."""
    return op.layer("ShuffleChannel", [x], x.shape, shuffle_channel_param={"group": groups})


def joined(op: Operation, values: Sequence[Value], axis: int, part: str = "") -> Value:
    """Add a Concat."""
    if len(values) == 1:
        return values[0]
    shape = list(values[0].shape)
    shape[axis] = sum(each.shape[axis] for each in values)
    return op.layer("Concat", values, tuple(shape), part=part, concat_param={"axis": axis} if axis != 1 else {})


def cut(op: Operation, x: Value, axis: int, sizes: Sequence[int], part: str = "") -> list[Value]:
    """Add a Slice layer for parts of these sizes."""
    if len(sizes) == 1:
        return [x]
    points = list(accumulate(sizes[:-1]))
    shapes = [(*x.shape[:axis], size, *x.shape[axis + 1 :]) for size in sizes]
    param: dict[str, Any] = {"slice_point": points}
    if axis != 1:
        param["axis"] = axis
    return op.layers("Slice", [x], shapes, part=part, slice_param=param)


def taken_apart(op: Operation, x: Value, axis: int, numbers: Sequence[int], part: str = "") -> Value:
    """Take values along an axis by numbers that are known: a Slice into single places, and a Concat of some.

    It moves whole numbers exactly also where products are of 16 bits, which an InnerProduct would round.
    """
    if axis == 0 and op.first_is_batch and not op.made.is_fixed(x):
        op.refuse("it takes some items of the batch, which no layer does")
    places = cut(op, x, axis, [1] * x.shape[axis], f"{part}_apart" if part else "apart")
    return joined(op, [places[number] for number in numbers], axis, part)


def range_of(
    op: Operation, x: Value, axis: int, taken: tuple[int, int], others: Iterable[tuple[int, int]] = (), part: str = ""
) -> Value:
    """Take values from a start to an end of an axis.

    Args:
        op: the operator.
        x: the value.
        axis: which.
        taken: start and end.
        others: what is taken along this axis elsewhere in the graph; one Slice layer makes all of them if they do
            not overlap.
        part: what the layer is for, where an operator becomes several.
    """
    start, end = taken
    if start >= end:
        op.refuse(f"it takes nothing of axis {axis}")
    if axis == 0 and (start, end) != (0, x.shape[0]) and op.first_is_batch and not op.made.is_fixed(x):
        op.refuse("it takes some items of the batch, which no layer does")
    if (start, end) == (0, x.shape[axis]):
        return x
    points = sorted({0, x.shape[axis], start, end, *(bound for each in others for bound in each)})
    bounds = list(pairwise(points))
    if (start, end) not in bounds:
        points = sorted({0, start, end, x.shape[axis]})
        bounds = list(pairwise(points))
    parts = op.remembered(
        (x.blob, axis, tuple(points)), lambda: cut(op, x, axis, [two - one for one, two in bounds], part)
    )
    return parts[bounds.index((start, end))]
