"""Operators that move values: other shapes, other orders, parts, joining."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch.fx import Node

from mgcaffe.tools.convert.importing import shapes
from mgcaffe.tools.convert.importing.axes import flipped
from mgcaffe.tools.convert.importing.products import chosen_along, for_each_item, joined_to_items
from mgcaffe.tools.convert.importing.shapes import cut, flattened, joined, permuted, range_of, reshaped, shuffled
from mgcaffe.tools.convert.importing.values import Constant, Result, Shape, Value
from mgcaffe.tools.convert.torch_in.operation import (
    Operation,
    arguments_of,
    is_counted,
    operator_name,
    refuse,
    shape_of,
)


def reshape(op: Operation) -> Result:
    """view, reshape, view_as, reshape_as, squeeze, unsqueeze: Reshape, or Flatten where it is that."""
    value = op["self"]
    if isinstance(value, Constant):
        return Constant(value.tensor.reshape(op.shape), value.name, value.trained)
    return reshaped(op, op.blob(), op.shape)


def flatten(op: Operation) -> Value:
    """flatten: Flatten."""
    x = op.blob()
    rank = len(x.shape)
    return flattened(op, x, op["start_dim"] % rank, op["end_dim"] % rank)


def permute(op: Operation) -> Result:
    """permute: Permute."""
    order = [axis % len(op.shape) for axis in op["dims"]]
    value = op["self"]
    if isinstance(value, Constant):
        return permuted(op, op.as_blob(value), order) if value.trained else Constant(value.tensor.permute(order))
    return permuted(op, op.blob(), order)


def transpose(op: Operation) -> Result:
    """transpose, t, mT, numpy_T, swapaxes, swapdims, movedim, moveaxis: Permute."""
    x, function = op.blob(), op.node.target
    assert callable(function)
    sizes = torch.empty(tuple(range(1, len(x.shape) + 1)), device="meta")  # no two alike
    made = function(**{**op.arguments, "self": sizes})
    return permuted(op, x, [size - 1 for size in made.shape])


def channel_shuffle(op: Operation) -> Value:
    """channel_shuffle: ShuffleChannel."""
    return shuffled(op, op.blob(), op["groups"])


def shuffle_of(node: Node) -> tuple[Node, int] | None:
    """Find ShuffleNet's idiom, view to (N, groups, C / groups, H, W), transpose(1, 2), view back.

    Returns:
        The node that it ends with and the groups; None: there is none at this node.
    """
    if operator_name(node) not in ("view", "reshape") or not isinstance(node.args[0], Node):
        return None
    before, apart = shape_of(node.args[0]), shape_of(node)
    if len(before) != 4 or len(apart) != 5:
        return None
    if apart != (before[0], apart[1], before[1] // max(1, apart[1]), *before[2:]):
        return None
    steps: list[Node] = []
    current = node
    while len(steps) < 2 and len(current.users) == 1:
        current = next(iter(current.users))
        if operator_name(current) not in ("contiguous", "clone"):
            steps.append(current)
    if len(steps) != 2 or operator_name(steps[0]) != "transpose" or operator_name(steps[1]) not in ("view", "reshape"):
        return None
    axes = sorted(axis % 5 for axis in steps[0].args[1:3] if isinstance(axis, int))
    return (steps[1], apart[1]) if axes == [1, 2] and shape_of(steps[1]) == before else None


def pixel_shuffle(op: Operation) -> Value:
    """pixel_shuffle: Reshape, Permute, Reshape."""
    return shapes.depth_to_space(op, _image(op), op["upscale_factor"], blocks_first=False)


def pixel_unshuffle(op: Operation) -> Value:
    """pixel_unshuffle: Reshape, Permute, Reshape."""
    return shapes.space_to_depth(op, _image(op), op["downscale_factor"], blocks_first=False)


def _image(op: Operation) -> Value:
    x = op.blob()
    if len(x.shape) != 4:
        op.refuse(f"the input has shape {x.shape}; its layers take (N, C, H, W)")
    return x


def repeat(op: Operation) -> Value:
    """repeat, tile: Tile for each axis that is repeated; of the batch Bias, with what has none of its own."""
    x = op.blob()
    given = op["repeats" if "repeats" in op.arguments else "dims"]
    x = shapes.with_rank(op, x, len(given))
    source = _items_for(op, x)
    if source is not None and list(given[1:]) == [1] * (len(x.shape) - 1):
        return for_each_item(op, x, source)
    return shapes.tiled(op, x, [1] * (len(x.shape) - len(given)) + list(given))


def expand(op: Operation) -> Result:
    """expand, expand_as, broadcast_to: nothing before sums and products that broadcast by themselves, else Tile."""
    value = op["self"]
    if isinstance(value, Constant):
        if tuple(value.tensor.shape) != op.shape and not _readers_broadcast(op):
            source = op.any_blob(op.shape[0])
            if source and (value.tensor.dim() < len(op.shape) or len(value.tensor) == 1):
                return for_each_item(op, value, source)
            return shapes.expanded(op, op.as_blob(value), op.shape)
        return value
    value = op.blob()
    if value.shape == op.shape or (_is_scale(value.shape, op.shape) and _readers_broadcast(op)):
        return value
    source = _items_for(op, value)
    tiled = shapes.expanded(op, value, op.shape) if source is None else for_each_item(op, value, source)
    op.made.share_memory(tiled, value)
    return tiled


def _items_for(op: Operation, value: Value) -> Value | None:
    """Return a blob of as many items as a value is to be given, which has none; None where it is not so."""
    has_one = len(value.shape) < len(op.shape) or value.shape[:1] == (1,)
    return op.any_blob(op.shape[0]) if has_one and op.shape[0] != 1 and op.made.is_fixed(value) else None


def _is_scale(shape: Shape, whole: Shape) -> bool:
    """Return whether a shape has a value for each of the first axes, so that Scale and Bias take it as their second."""
    pairs = zip(shape, whole, strict=False)
    lead = next((axis for axis, (size, wanted) in enumerate(pairs) if size != wanted), len(shape))
    return len(shape) == len(whole) and set(shape[lead:]) <= {1}


def _readers_broadcast(op: Operation) -> bool:
    """Return whether all readers of an expanded value make the same of what it was before."""

    def has_the_shape(other: Node) -> bool:
        return shape_of(other) == op.shape and operator_name(other) not in EXPANDING and not op.is_constant(other)

    return all(
        operator_name(user) in ("add", "sub", "mul", "div") and any(map(has_the_shape, user.all_input_nodes))
        for user in op.node.users
    )


def concatenate(op: Operation) -> Value:
    """cat: Concat."""
    return joined_to_items(op, op["tensors"], op["dim"] % len(op.shape))


def stack(op: Operation) -> Value:
    """stack: Reshape of each, Concat."""
    axis = op["dim"] % len(op.shape)
    one = (*op.shape[:axis], 1, *op.shape[axis + 1 :])
    parts = [reshaped(op, op.as_blob(each), one, f"part{number}") for number, each in enumerate(op["tensors"])]
    return op.layer("Concat", parts, concat_param={"axis": axis})


def split(op: Operation) -> Sequence[Value]:
    """chunk, split, split_with_sizes, unsafe_split: Slice."""
    x = op.blob()
    axis = op["dim"] % len(x.shape)
    sizes = [int(each.shape[axis]) for each in op.node.meta["val"]]
    if len(sizes) == 1 and op.arguments.get("split_size") == sizes[0]:
        op.takes_all_items(x, axis)
    return cut(op, x, axis, sizes)


def unbind(op: Operation) -> Sequence[Value]:
    """unbind: Slice, and Reshape of each part."""
    x = op.blob()
    axis = op["dim"] % len(x.shape)
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    parts = cut(op, x, axis, [1] * x.shape[axis])
    return [reshaped(op, each, shape, f"part{number}") for number, each in enumerate(parts)]


def roll(op: Operation) -> Value:
    """roll: Slice and Concat for each axis."""
    x = op.blob()
    if not op["dims"]:
        op.refuse("it moves values over the ends of all axes")
    for shift, axis in zip(op["shifts"], op["dims"], strict=True):
        axis %= len(x.shape)
        first = -shift % x.shape[axis]
        if axis == 0 and first and op.first_is_batch:
            op.refuse("it moves the items of the batch, which no layer does")
        if first:
            one, two = cut(op, x, axis, [first, x.shape[axis] - first], f"axis{axis}")
            x = joined(op, [two, one], axis, f"axis{axis}_joined")
    return x


def get_item(op: Operation) -> Value:
    """One part of the above."""
    parts, number = op[0], op[1]
    if not isinstance(parts, (list, tuple)) or number >= len(parts):
        refuse(op.node.all_input_nodes[0], f"no layer makes its result {number}, which is read")
    return op.as_blob(parts[number])


def _range(node: Node) -> tuple[int, int, int]:
    """Return axis, start and end of what a select, slice or narrow takes."""
    given = arguments_of(node)
    shape = shape_of(node.args[0])  # type: ignore[arg-type]
    axis = int(given["dim"]) % len(shape)
    size = shape[axis]
    if operator_name(node) == "select":
        start = int(given["index"]) % size
        return axis, start, start + 1
    start = int(given["start"] or 0)
    start = min(max(0, start + size if start < 0 else start), size)
    return axis, start, start + shape_of(node)[axis]


def part(op: Operation) -> Result:
    """select, slice, narrow: Slice; all parts that are taken of a blob along an axis by one layer.

    slice with a step: InnerProduct with weights of ones and zeros; of ids Slice and Concat.
    """
    x = op.blob()
    axis, start, end = _range(op.node)
    step = op.arguments.get("step") or 1
    if step != 1 and is_counted(op.inputs[0]):
        return shapes.taken_apart(op, x, axis, [start + step * each for each in range(op.shape[axis])])
    if step != 1:
        return chosen_along(op, x, axis, start + step * torch.arange(op.shape[axis]))
    users = op.node.args[0].users  # type: ignore[union-attr]
    others = [
        _range(other)[1:]
        for other in users
        if operator_name(other) in PARTS and _range(other)[0] == axis and arguments_of(other).get("step") in (None, 1)
    ]
    if (start, end) == (0, x.shape[axis]) and op.arguments.get("end") == end:
        op.takes_all_items(x, axis)
    taken = range_of(op, x, axis, (start, end), others)
    return reshaped(op, taken, op.shape, "" if taken is x else "reshape")


def flip(op: Operation) -> Value:
    """flip: InnerProduct for each axis, with the ones of a reversed unit matrix; of ids Slice and Concat."""
    x = op.blob()
    for axis in (each % len(x.shape) for each in op["dims"]):
        if axis == 0 and op.first_is_batch:
            op.refuse("it reverses the order of the batch, which no layer does")
        if is_counted(op.inputs[0]):
            x = shapes.taken_apart(op, x, axis, range(x.shape[axis] - 1, -1, -1), f"axis{axis}")
        else:
            x = flipped(op, x, axis, f"axis{axis}")
    return x


_TRANSPOSING = ("transpose", "t", "mT", "numpy_T", "swapaxes", "swapdims", "movedim", "moveaxis")
PARTS = ("select", "slice", "narrow")
EXPANDING = ("expand", "expand_as", "broadcast_to")

OPERATORS: Mapping[str, Callable[[Operation], Result]] = {
    "view": reshape,
    "reshape": reshape,
    "_unsafe_view": reshape,
    "view_as": reshape,
    "reshape_as": reshape,
    "unflatten": reshape,
    "unsqueeze": reshape,
    "squeeze": reshape,
    "flatten": flatten,
    "permute": permute,
    **dict.fromkeys(_TRANSPOSING, transpose),
    "channel_shuffle": channel_shuffle,
    "native_channel_shuffle": channel_shuffle,
    "pixel_shuffle": pixel_shuffle,
    "pixel_unshuffle": pixel_unshuffle,
    "flip": flip,
    "repeat": repeat,
    "tile": repeat,
    **dict.fromkeys(EXPANDING, expand),
    "cat": concatenate,
    "concat": concatenate,
    "stack": stack,
    "chunk": split,
    "split": split,
    "split_with_sizes": split,
    "unsafe_split": split,
    "unbind": unbind,
    "roll": roll,
    "getitem": get_item,
    **dict.fromkeys(PARTS, part),
}
