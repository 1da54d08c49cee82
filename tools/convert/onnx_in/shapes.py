"""Operators that give values another shape or another order, or repeat them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mgcaffe.tools.convert.importing import shapes
from mgcaffe.tools.convert.importing.products import for_each_item
from mgcaffe.tools.convert.importing.shapes import expanded, permuted, reshaped, shuffled, tiled
from mgcaffe.tools.convert.importing.values import Constant, Shape, Value
from mgcaffe.tools.convert.onnx_in.graph import Node
from mgcaffe.tools.convert.onnx_in.names import are_one_layer
from mgcaffe.tools.convert.onnx_in.operation import Operation, Table


def into(op: Operation, x: Value, shape: Shape, part: str = "") -> Value:
    """Return the value in another shape, which has to hold as many values."""
    op.check_shape(shape)
    if math.prod(shape) != math.prod(x.shape) or not shape:
        op.refuse(f"shape {shape} does not hold the values of {x.shape}")
    return op.made.recalled(("shape", x.blob, shape)) or reshaped(op, x, shape, part)


def reshape(op: Operation) -> Value:
    """Reshape, or Flatten where it is that; a ShuffleChannel with the Transpose and Reshape behind that make it one."""
    x, wanted = op.blob(), op.numbers(1, "shape")
    if wanted is None:
        op.refuse("its shape is missing")
    shape = _resolved(op, x.shape, wanted, zero_copies=not op.integer("allowzero", 0))
    groups = _shuffled_groups(op, x.shape, shape)
    return shuffled(op, x, groups) if groups else into(op, x, shape)


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
    if axis == 0 and x.shape[:1] == (1,):  # of several, the Reshape tells
        op.takes_all_items(x, axis)
    return into(op, x, shape)


def squeeze(op: Operation) -> Value:
    """Reshape."""
    x, given = op.blob(), op.listed("axes", 1, 13)
    axes = [axis for axis, size in enumerate(x.shape) if size == 1] if given is None else op.axes(given, len(x.shape))
    if any(x.shape[axis] != 1 for axis in axes):
        op.refuse(f"it takes axes {axes} out of {x.shape}, which are not of size 1")
    return into(op, x, tuple(size for axis, size in enumerate(x.shape) if axis not in axes))


def unsqueeze(op: Operation) -> Value:
    """Reshape."""
    x, given = op.blob(), op.listed("axes", 1, 13)
    if not given or len(given) > 32:
        op.refuse("it has no axes, or too many")
    rank = len(x.shape) + len(given)
    axes, sizes = op.axes(given, rank), iter(x.shape)
    return into(op, x, tuple(1 if axis in axes else next(sizes) for axis in range(rank)))


def transpose(op: Operation) -> Value:
    """Permute."""
    x = op.blob()
    rank = len(x.shape)
    given = op.integers("perm")
    order = list(range(rank))[::-1] if given is None else op.axes(given, rank)
    if len(order) != rank:
        op.refuse(f"its perm is {given}, for {rank} axes")
    return op.made.recalled(("order", x.blob, tuple(order))) or permuted(op, x, order)


def repeat(op: Operation) -> Value:
    """Tile."""
    x, repeats = op.blob(), op.numbers(1, "repeats")
    if repeats is None or len(repeats) != len(x.shape):
        op.refuse(f"its repeats are {repeats}, for {len(x.shape)} axes")
    return tiled(op, x, repeats)


def expand(op: Operation) -> Value:
    """Tile, or nothing; of a weight that is joined to each item Bias of zeros."""
    given, wanted = op.input(0), op.numbers(1, "shape")
    if wanted is None or len(wanted) > 32:
        op.refuse("its shape is missing or too long")
    if isinstance(given, Constant):
        return _weight_of_items(op, given, tuple(wanted))
    x = op.blob()
    shape = op.broadcast(x.shape, tuple(wanted))
    return expanded(op, x, shape)


def _weight_of_items(op: Operation, weight: Constant, wanted: Shape) -> Value:
    op.shape = op.broadcast(tuple(weight.tensor.shape), wanted)
    op.check_shape(op.shape)
    inputs = (op.lookup(name) for name in op.graph.inputs)
    source = next((each for each in inputs if isinstance(each, Value) and each.shape[:1] == op.shape[:1]), None)
    if source is None or tuple(weight.tensor.shape) != (1, *op.shape[1:]):
        op.refuse(f"it repeats a weight of shape {tuple(weight.tensor.shape)} along other axes than that of the items")
    return for_each_item(op, weight, source)


def depth_to_space(op: Operation) -> Value:
    """Reshape, Permute, Reshape."""
    x, size = op.blob(), op.integer("blocksize", 0)
    mode = op.word("mode", "DCR")
    if len(x.shape) != 4 or not 1 <= size <= x.shape[1] or x.shape[1] % (size * size) or mode not in ("DCR", "CRD"):
        op.refuse(f"its blocks are of {size}, its mode is '{mode}', its input has shape {x.shape}")
    return shapes.depth_to_space(op, x, size, blocks_first=mode == "DCR")


def space_to_depth(op: Operation) -> Value:
    """Reshape, Permute, Reshape."""
    x, size = op.blob(), op.integer("blocksize", 0)
    mode = op.word("mode", "DCR")
    if len(x.shape) != 4 or size < 1 or x.shape[2] % size or x.shape[3] % size or mode not in ("DCR", "CRD"):
        op.refuse(f"its blocks are of {size}, its mode is '{mode}', its input has shape {x.shape}")
    return shapes.space_to_depth(op, x, size, blocks_first=mode == "DCR")


OPERATORS: Table = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Tile": repeat,
    "Expand": expand,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
}
