"""Operators that take parts of values, or join values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import torch

from mgcaffe.tools.convert.importing import products
from mgcaffe.tools.convert.importing.products import joined_to_items
from mgcaffe.tools.convert.importing.shapes import cut, range_of
from mgcaffe.tools.convert.importing.values import Constant, Shape, Value
from mgcaffe.tools.convert.onnx_in.graph import Node
from mgcaffe.tools.convert.onnx_in.operation import Operation, Table, shape_of
from mgcaffe.tools.convert.onnx_in.shapes import into


def concatenate(op: Operation) -> Value:
    """Concat."""
    values = [op.input(number) or op.blob(number) for number in range(len(op.inputs))]
    if not values or "axis" not in op.node.attributes:
        op.refuse("it has no inputs or no axis")
    shapes = [shape_of(each) for each in values]
    first, rank = shapes[0], len(shapes[0])
    axis = op.axis(op.integer("axis", 0), rank)
    others = {(*shape[:axis], *shape[axis + 1 :]) for shape in shapes if len(shape) == rank}
    if len(others) != 1 or any(len(shape) != rank for shape in shapes):
        op.refuse(f"shapes {' and '.join(map(str, shapes[:4]))} cannot be joined")
    op.shape = (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])
    return joined_to_items(op, values, axis)


def split(op: Operation) -> Sequence[Value]:
    """Slice."""
    x = op.blob()
    axis = op.axis(op.integer("axis", 0), len(x.shape))
    size, count = x.shape[axis], len(op.node.outputs)
    sizes = op.listed("split", 1, 13)
    if sizes is None:
        if op.integer("num_outputs", count) != count:
            op.refuse(f"it has {count} outputs, and says {op.integer('num_outputs', count)}")
        part = -(-size // count)
        sizes = [part] * (count - 1) + [size - part * (count - 1)]
    if len(sizes) != count or sum(sizes) != size or any(each < 1 for each in sizes):
        op.refuse(f"parts of {sizes} are not what {count} outputs take of an axis of {size}")
    if axis == 0 and count > 1 and op.first_is_batch:
        op.refuse("it takes some items of the batch, which no layer does")
    if count == 1 and op.listed("split", 1, 13) is not None:
        op.takes_all_items(x, axis)
    return cut(op, x, axis, sizes)


def _ranges(op: Operation, node: Node, shape: Shape) -> list[tuple[int, range]] | None:
    """Return the axes of a Slice, and which places it takes along each; None where its numbers are not known."""
    if op.opset >= 10:
        known = [op.lookup(name) if name else None for name in (*node.inputs[1:5], "", "", "", "")[:4]]
        if any(each is not None and not isinstance(each, Constant) for each in known):
            return None
        lists = [
            None if each is None else [int(size) for size in each.tensor.reshape(-1)]
            for each in known
            if each is None or isinstance(each, Constant)
        ]
    else:
        lists = [node.attributes.get(name) for name in ("starts", "ends", "axes")] + [None]
    starts, ends, axes, steps = lists
    if not isinstance(starts, list) or not isinstance(ends, list):
        return None
    rank = len(shape)
    axes = list(range(len(starts))) if axes is None else axes
    if len(starts) != len(ends) or len(axes) != len(starts) or any(not -rank <= axis < rank for axis in axes):
        return None
    steps = [1] * len(starts) if steps is None else steps
    if len(steps) != len(starts) or 0 in steps:
        return None
    return [
        (axis % rank, range(*slice(start, end, step).indices(shape[axis])))
        for start, end, step, axis in zip(starts, ends, steps, axes, strict=True)
    ]


def part(op: Operation) -> Value:
    """Slice; all parts that are taken of a blob along one axis by one layer; InnerProduct where it has a step."""
    x = op.blob()
    ranges = _ranges(op, op.node, x.shape)
    if ranges is None:
        op.refuse("its starts, ends, axes and steps are computed, or do not fit")
    if len({axis for axis, _ in ranges}) != len(ranges):
        op.refuse("it names an axis twice")
    if _ends_with_last_item(op, ranges, x.shape):
        op.takes_all_items(x, 0)
    return _taken(op, x, ranges)


def _ends_with_last_item(op: Operation, ranges: Sequence[tuple[int, range]], shape: Shape) -> bool:
    """Return whether a Slice takes all places of axis 0, but would not take one more."""
    if (0, range(shape[0])) not in ranges:
        return False
    return (0, range(shape[0] + 1)) not in (_ranges(op, op.node, (shape[0] + 1, *shape[1:])) or ())


def _taken(op: Operation, x: Value, ranges: Sequence[tuple[int, range]]) -> Value:
    """Take places along axes, one after the other."""
    readers = op.graph.readers.get(op.node.inputs[0], ())
    for place, (axis, places) in enumerate(ranges):
        others: list[tuple[int, int]] = []
        if places.step != 1 and len(places) > 1:
            op.shape = (*x.shape[:axis], len(places), *x.shape[axis + 1 :])
            x = products.chosen_along(op, x, axis, torch.tensor(places))
            continue
        if place == 0 and len(ranges) == 1:
            for node in readers:
                taken = (_ranges(op, node, x.shape) if node.kind == "Slice" else None) or []
                others += [(its.start, its.stop) for other, its in taken if other == axis and its and its.step == 1]
        first = places.start
        x = range_of(op, x, axis, (first, first + len(places)), others)
    return x


def gather(op: Operation) -> Value:
    """Slice, for one index or neighbouring ones, and Reshape; for others InnerProduct; of a weight's rows Embed."""
    rows, given = op.input(1), op.input(0)
    if isinstance(rows, Value):
        return _looked_up(op, rows)
    if given is None:
        op.refuse("its input 0 is missing")
    axis = op.axis(op.integer("axis", 0), len(shape_of(given)))
    size = shape_of(given)[axis]
    if rows is None or rows.tensor.is_floating_point() or not rows.tensor.numel():
        op.refuse("its indices are missing, or are no whole numbers")
    numbers = [int(number) for number in rows.tensor.reshape(-1)]
    if not all(-size <= number < size for number in numbers):
        op.refuse(f"it takes {numbers[:8]} of {size}, which are not there")
    numbers = [number % size for number in numbers]
    if isinstance(given, Constant) and axis == 0 and len(given.tensor.shape) == 2:
        return products.looked_up(op, given, rows.tensor)
    x = op.blob()
    if any(two - one != 1 for one, two in pairwise(numbers)):
        op.shape = (*x.shape[:axis], *rows.tensor.shape, *x.shape[axis + 1 :])
        return products.chosen_along(op, x, axis, rows.tensor)
    if len(numbers) == size:
        op.takes_all_items(x, axis)
    y = _taken(op, x, [(axis, range(numbers[0], numbers[-1] + 1))])
    return into(op, y, (*x.shape[:axis], *rows.tensor.shape, *x.shape[axis + 1 :]), "reshape")


def _looked_up(op: Operation, rows: Value) -> Value:
    """Add an Embed, for rows of a weight whose numbers are computed or an input."""
    table = op.weight(0, "table")
    axis = op.axis(op.integer("axis", 0), max(1, table.tensor.dim()))
    if table.tensor.dim() != 2 or axis != 0:
        shape = tuple(table.tensor.shape)
        op.refuse(f"it looks up values along axis {axis} of a weight of shape {shape}; Embed takes rows of a matrix")
    return products.looked_up_by(op, table, replace(rows, whole=False))


OPERATORS: Table = {
    "Concat": concatenate,
    "Split": split,
    "Slice": part,
    "Gather": gather,
}
