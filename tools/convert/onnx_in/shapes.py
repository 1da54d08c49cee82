"""Operators that move values: other shapes, other orders, parts, joining."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from mgcaffe.tools.convert.importing.shapes import cut, joined, permuted, range_of, reshaped, shuffled
from mgcaffe.tools.convert.importing.values import Constant, Shape, Value
from mgcaffe.tools.convert.onnx_in.graph import Node
from mgcaffe.tools.convert.onnx_in.names import are_one_layer
from mgcaffe.tools.convert.onnx_in.operation import Operation, Table


def _into(op: Operation, x: Value, shape: Shape, part: str = "") -> Value:
    """Return the value in another shape, which has to hold as many values."""
    op.check_shape(shape)
    if math.prod(shape) != math.prod(x.shape) or not shape:
        op.refuse(f"shape {shape} does not hold the values of {x.shape}")
    return reshaped(op, x, shape, part)


def reshape(op: Operation) -> Value:
    """Reshape, or Flatten where it is that; a ShuffleChannel with the Transpose and Reshape behind that make it one."""
    x, wanted = op.blob(), op.numbers(1, "shape")
    if wanted is None:
        op.refuse("its shape is missing")
    shape = _resolved(op, x.shape, wanted, zero_copies=not op.integer("allowzero", 0))
    groups = _shuffled_groups(op, x.shape, shape)
    return shuffled(op, x, groups) if groups else _into(op, x, shape)


def _resolved(op: Operation, old: Shape, wanted: Sequence[int], *, zero_copies: bool) -> Shape:
    """Return the sizes that 0 (as before) and -1 (what is left) stand for."""
    shape = list(wanted)
    for axis, size in enumerate(shape):
        if size == 0 and zero_copies:
            if axis >= len(old):
                op.refuse(f"its shape {list(wanted)} takes over axis {axis} of {old}")
            shape[axis] = old[axis]
    if shape.count(-1) > 1 or any(size < -1 for size in shape):
        op.refuse(f"its shape {list(wanted)} leaves more than one size open")
    if -1 in shape:
        rest = math.prod(size for size in shape if size != -1)
        if not rest or math.prod(old) % rest:
            op.refuse(f"its shape {list(wanted)} does not hold the values of {old}")
        shape[shape.index(-1)] = math.prod(old) // rest
    return tuple(shape)


def _shuffled_groups(op: Operation, old: Shape, apart: Shape) -> int:
    """Absorb the nodes of ShuffleNet's idiom, (N, groups, C / groups, ...), axes 1 and 2 changed, and back.

    Returns:
        The groups; 0 where it is not that.
    """
    if len(old) < 3 or len(apart) != len(old) + 1:
        return 0
    if apart != (old[0], apart[1], old[1] // max(1, apart[1]), *old[2:]):
        return 0
    order = [0, 2, 1, *range(3, len(apart))]
    for kind in ("Transpose", "Reshape"):
        node = op.only_reader()
        if node is None or node.kind != kind or not _continues(op, node, order, old):
            op.absorbed.clear()
            return 0
        op.absorbed.append(node)
    return apart[1]


def _continues(op: Operation, node: Node, order: list[int], back: Shape) -> bool:
    """Return whether a Transpose has that order, or a Reshape gives that shape."""
    if node.operator == "Transpose":
        return node.attributes.get("perm") == order
    known = op.lookup(node.inputs[1]) if len(node.inputs) > 1 else None
    if not isinstance(known, Constant) or known.tensor.is_floating_point() or known.tensor.dim() != 1:
        return False
    sizes = [int(size) for size in known.tensor]
    fits = [one in (size, -1) for one, size in zip(sizes, back, strict=False)]
    return len(sizes) == len(back) and all(fits) and sizes.count(-1) <= 1


def flatten(op: Operation) -> Value:
    """Flatten or Reshape to two axes; nothing where the exporter here wrote it for an InnerProduct."""
    x = op.blob()
    axis = op.integer("axis", 1)
    if not -len(x.shape) <= axis <= len(x.shape):
        op.refuse(f"it names axis {axis} of {len(x.shape)}")
    axis = axis + len(x.shape) if axis < 0 else axis
    shape = math.prod(x.shape[:axis]), math.prod(x.shape[axis:])
    reader = op.only_reader()
    if axis == 1 and reader is not None and reader.kind == "Gemm" and are_one_layer(op.node, reader):
        return Value(x.blob, shape)  # InnerProduct flattens by itself
    return _into(op, x, shape)


def squeeze(op: Operation) -> Value:
    """Reshape."""
    x, given = op.blob(), op.listed("axes", 1, 13)
    axes = [axis for axis, size in enumerate(x.shape) if size == 1] if given is None else op.axes(given, len(x.shape))
    if any(x.shape[axis] != 1 for axis in axes):
        op.refuse(f"it takes axes {axes} out of {x.shape}, which are not of size 1")
    return _into(op, x, tuple(size for axis, size in enumerate(x.shape) if axis not in axes))


def unsqueeze(op: Operation) -> Value:
    """Reshape."""
    x, given = op.blob(), op.listed("axes", 1, 13)
    if not given or len(given) > 32:
        op.refuse("it has no axes, or too many")
    rank = len(x.shape) + len(given)
    axes, sizes = op.axes(given, rank), iter(x.shape)
    return _into(op, x, tuple(1 if axis in axes else next(sizes) for axis in range(rank)))


def transpose(op: Operation) -> Value:
    """Permute."""
    x = op.blob()
    rank = len(x.shape)
    given = op.integers("perm")
    order = list(range(rank))[::-1] if given is None else op.axes(given, rank)
    if len(order) != rank:
        op.refuse(f"its perm is {given}, for {rank} axes")
    op.shape = tuple(x.shape[axis] for axis in order)
    return permuted(op, x, order)


def concatenate(op: Operation) -> Value:
    """Concat."""
    values = [op.blob(number) for number in range(len(op.inputs))]
    if not values or "axis" not in op.node.attributes:
        op.refuse("it has no inputs or no axis")
    rank = len(values[0].shape)
    axis = op.axis(op.integer("axis", 0), rank)
    others = {(*each.shape[:axis], *each.shape[axis + 1 :]) for each in values if len(each.shape) == rank}
    if len(others) != 1 or any(len(each.shape) != rank for each in values):
        op.refuse(f"shapes {' and '.join(str(each.shape) for each in values[:4])} cannot be joined")
    op.shape = (*values[0].shape[:axis], sum(each.shape[axis] for each in values), *values[0].shape[axis + 1 :])
    return joined(op, values, axis)


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
    if axis == 0 and count > 1:
        op.refuse("it takes some items of the batch, which no layer does")
    return cut(op, x, axis, sizes)


def _ranges(op: Operation, node: Node, shape: Shape) -> list[tuple[int, int, int]] | None:
    """Return axis, start and end of what a Slice takes; None where its numbers are not known or have steps."""
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
    if steps is not None and (len(steps) != len(starts) or any(step != 1 for step in steps)):
        return None
    found = []
    for start, end, axis in zip(starts, ends, axes, strict=True):
        size = shape[axis]
        first, last = (min(max(0, each + size if each < 0 else each), size) for each in (start, end))
        found.append((axis % rank, first, last))
    return found


def part(op: Operation) -> Value:
    """Slice; all parts that are taken of a blob along one axis by one layer."""
    x = op.blob()
    ranges = _ranges(op, op.node, x.shape)
    if ranges is None:
        op.refuse("its starts, ends and axes are computed or do not fit, or it takes values with a step")
    if len({axis for axis, _, _ in ranges}) != len(ranges):
        op.refuse("it names an axis twice")
    return _taken(op, x, ranges)


def _taken(op: Operation, x: Value, ranges: Sequence[tuple[int, int, int]]) -> Value:
    """Take ranges of axes, one after the other."""
    readers = op.graph.readers.get(op.node.inputs[0], ())
    for place, (axis, start, end) in enumerate(ranges):
        if start >= end:
            op.refuse(f"it takes nothing of axis {axis}")
        others: list[tuple[int, int]] = []
        if place == 0 and len(ranges) == 1:
            for node in readers:
                taken = _ranges(op, node, x.shape) if node.kind == "Slice" else None
                others += [(one, two) for its, one, two in taken or () if its == axis and one < two]
        x = range_of(op, x, axis, (start, end), others)
    return x


def gather(op: Operation) -> Value:
    """Slice, for one index or neighbouring ones; Reshape where these have several axes."""
    x, indices = op.blob(), op.constant(1, "indices")
    axis = op.axis(op.integer("axis", 0), len(x.shape))
    size = x.shape[axis]
    if indices is None or indices.tensor.is_floating_point() or not 0 < indices.tensor.numel() <= size:
        op.refuse("its indices are missing, or are no whole numbers, or more than there are values")
    numbers = [int(number) % size if -size <= number < size else -1 for number in indices.tensor.reshape(-1)]
    if numbers[0] < 0 or any(two - one != 1 for one, two in pairwise(numbers)):
        op.refuse(f"it takes {numbers[:8]} of {size}; Slice takes neighbours in their order")
    y = _taken(op, x, [(axis, numbers[0], numbers[-1] + 1)])
    return _into(op, y, (*x.shape[:axis], *indices.tensor.shape, *x.shape[axis + 1 :]), "reshape")


def repeat(op: Operation) -> Value:
    """Tile."""
    x, repeats = op.blob(), op.numbers(1, "repeats")
    if repeats is None or len(repeats) != len(x.shape):
        op.refuse(f"its repeats are {repeats}, for {len(x.shape)} axes")
    return _tiled(op, x, repeats)


def expand(op: Operation) -> Value:
    """Tile, or nothing."""
    x, wanted = op.blob(), op.numbers(1, "shape")
    if wanted is None or len(wanted) > 32:
        op.refuse("its shape is missing or too long")
    shape = op.broadcast(x.shape, tuple(wanted))
    if len(shape) > len(x.shape):
        x = _into(op, x, (1,) * (len(shape) - len(x.shape)) + x.shape)
    return _tiled(op, x, [size // own for size, own in zip(shape, x.shape, strict=True)])


def _tiled(op: Operation, x: Value, repeats: Sequence[int]) -> Value:
    for axis, count in enumerate(repeats):
        if count == 1:
            continue
        if count < 1 or axis == 0:
            op.refuse(f"it repeats axis {axis} {count} times; Tile repeats other axes than the batch, once or more")
        shape = (*x.shape[:axis], x.shape[axis] * count, *x.shape[axis + 1 :])
        x = op.layer("Tile", [x], shape, tile_param={"tiles": count, **({"axis": axis} if axis != 1 else {})})
    return x


def depth_to_space(op: Operation) -> Value:
    """Reshape, Permute, Reshape."""
    x, size = op.blob(), op.integer("blocksize", 0)
    mode = op.word("mode", "DCR")
    if len(x.shape) != 4 or not 1 <= size <= x.shape[1] or x.shape[1] % (size * size) or mode not in ("DCR", "CRD"):
        op.refuse(f"its blocks are of {size}, its mode is '{mode}', its input has shape {x.shape}")
    batch, channels, rows, columns = x.shape
    deep = channels // (size * size)
    if mode == "DCR":
        apart, order = (batch, size, size, deep, rows, columns), [0, 3, 4, 1, 5, 2]
    else:
        apart, order = (batch, deep, size, size, rows, columns), [0, 1, 4, 2, 5, 3]
    return _rearranged(op, x, apart, order, (batch, deep, rows * size, columns * size))


def space_to_depth(op: Operation) -> Value:
    """Reshape, Permute, Reshape."""
    x, size = op.blob(), op.integer("blocksize", 0)
    mode = op.word("mode", "DCR")
    if len(x.shape) != 4 or size < 1 or x.shape[2] % size or x.shape[3] % size or mode not in ("DCR", "CRD"):
        op.refuse(f"its blocks are of {size}, its mode is '{mode}', its input has shape {x.shape}")
    batch, channels, rows, columns = x.shape
    apart = (batch, channels, rows // size, size, columns // size, size)
    whole = (batch, channels * size * size, rows // size, columns // size)
    return _rearranged(op, x, apart, [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4], whole)


def _rearranged(op: Operation, x: Value, apart: Shape, order: list[int], whole: Shape) -> Value:
    op.check_shape(whole)
    y = reshaped(op, x, apart, "apart")
    op.shape = tuple(apart[axis] for axis in order)
    y = op.layer("Permute", [y], part="order", permute_param={"order": order})
    return reshaped(op, y, whole)


OPERATORS: Table = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Concat": concatenate,
    "Split": split,
    "Slice": part,
    "Gather": gather,
    "Tile": repeat,
    "Expand": expand,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
}
