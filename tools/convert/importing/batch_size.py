"""Nets that hold for any batch size, by what is different in the same model at another size.

A graph has numbers where a module computes with the batch size: attention's heads are (steps, items x heads, ...), and
a Reshape layer that has these sizes holds for one batch size alone. Where the model can be made at another one, sizes
that differ are left open, and everything else has to be the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from mgcaffe.errors import EngineError
from mgcaffe.prototxt import LayerParameter
from mgcaffe.tools.convert.importing.layers_made import moves_first_axis
from mgcaffe.tools.convert.importing.values import Shape
from mgcaffe.tools.convert.model import Model

_Model = TypeVar("_Model", bound=Model)

_EACH_ITEM = {
    "Input", "Convolution", "Deconvolution", "InnerProduct", "Pooling", "LRN", "BatchNorm", "Scale", "Bias", "ReLU",
    "ReLU6", "PReLU", "ELU", "GELU", "Sigmoid", "HardSigmoid", "TanH", "Swish", "HardSwish", "Clip", "Dropout",
    "Eltwise", "Concat", "Slice", "Flatten", "Softmax", "ShuffleChannel", "Silence",
}  # fmt: skip
"""Types that compute each item by itself, unless a field names axis 0."""
_WITH_AXES = ("scale_param", "bias_param", "concat_param", "slice_param", "flatten_param", "softmax_param")


def for_any_batch(
    model: _Model, at: Callable[[int], _Model] | None, size: int | None = None
) -> tuple[_Model, list[str]]:
    """Return a net that holds for any batch size, and what holds for that of the model alone, as `notes_on_sizes` says.

    Args:
        model: the net at the batch size that is asked for.
        at: makes it at another one; None: it is the only one that there is.
        size: the batch size; None: the first axis of its first input.
    """
    inputs = _inputs(model)
    if not inputs or not inputs[0].input_param.shape[0].dim:
        return model, []
    size = _size(model) if size is None else size
    suspects = [*_with_sizes(model, size), *map(_operator, model.all_items)]
    if at is None:
        return model, suspects
    try:
        other = at(size + 1)
        bound = _open_sizes(model, other)
        if not bound or size > 1:
            return model, bound
        # At 1 an axis of one item is like any other axis of size 1.
        third = at(3)
        differing = _open_sizes(other, third) or _different_values(model, other, third)
    except EngineError:
        layers = model.source.param.layer
        return model, suspects or [_layer(each.name) for each in layers if not _computes_each_item(each, size)]
    if differing:
        return model, bound
    for layer, wanted in zip(_inputs(other), _inputs(model), strict=True):
        layer.input_param.CopyFrom(wanted.input_param)
    return other, []


def notes_on_sizes(bound: Sequence[str]) -> list[str]:
    """Return a note on what holds for one batch size alone."""
    if not bound:
        return []
    others = f" and {len(bound) - 1} more" if bound[1:] else ""
    return [f"for this batch size alone, of which the graph has numbers: {bound[0]}{others}"]


def _layer(name: str) -> str:
    return f"layer '{name}'"


def _operator(name: str) -> str:
    return f"operator '{name}', which takes all items"


def _size(model: Model) -> int:
    return int(_inputs(model)[0].input_param.shape[0].dim[0])


def _computes_each_item(layer: LayerParameter, size: int) -> bool:
    """Return whether a layer computes each item by itself, as far as that can be seen at this batch size."""
    if layer.type == "Reshape":
        return size > 1 and layer.reshape_param.shape.dim[:1] == [0]
    frozen = any(param.lr_mult == 0 for param in layer.param)  # perhaps constants that are computed of the size
    return layer.type in _EACH_ITEM and not frozen and all(getattr(layer, name).axis != 0 for name in _WITH_AXES)


def _with_sizes(model: Model, size: int) -> list[str]:
    """Return the layers that seem to hold for one batch size alone.

    These are Reshapes that do not leave the first axis as it is, and Scale and Bias layers with a value for each item.

    With one item, behind a layer that moves the first axis, any axis of size 1 may be taken for that of the items.
    """
    found, moved = [], False
    for layer in model.source.param.layer:
        moved = moved or moves_first_axis(layer)
        given = layer.type == "Reshape" and layer.reshape_param.shape.dim[:1] != [0]
        of_items = layer.type in ("Scale", "Bias") and len(layer.bottom) == 1 and not moved and size > 1
        of_items = of_items and (layer.scale_param.axis if layer.type == "Scale" else layer.bias_param.axis) == 0
        if given or of_items or (moved and size == 1 and layer.type in ("Reshape", "Flatten")):
            found.append(_layer(layer.name))
    return found


def _inputs(model: Model) -> list[LayerParameter]:
    return [layer for layer in model.source.param.layer if layer.type == "Input"]


def _open_sizes(model: Model, other: Model) -> list[str]:
    """Leave the sizes of Reshape layers open that differ, and return the layers that differ in something else."""
    layers, others = list(model.source.param.layer), list(other.source.param.layer)
    for layer, its in zip(layers, others, strict=False):
        if (layer.name, layer.type, *layer.bottom, *layer.top) != (its.name, its.type, *its.bottom, *its.top):
            return [_layer(layer.name)]
    if len(layers) != len(others):
        return [_layer(layers[-1].name)]
    bound = _different_weights(model, other)
    pairs = zip(layers, _with_bottoms(model), _with_bottoms(other), strict=True)
    for (layer, *both), its in zip(pairs, others, strict=True):
        if layer.type == "Reshape":
            holds = _leave_open(layer, both)
        else:
            holds = layer.type == "Input" or (layer == its and not _takes_items(layer, both))
        if not holds:
            bound.append(_layer(layer.name))
    return bound


def _takes_items(layer: LayerParameter, shapes: Sequence[tuple[Shape, Shape]]) -> bool:
    """Return whether a Slice cuts the axis whose size differs, as so many items as there are now."""
    axis = layer.slice_param.axis
    return layer.type == "Slice" and len({bottom[axis] for bottom, _ in shapes}) > 1


def _different_weights(model: Model, other: Model) -> list[str]:
    """Return the layers whose parameters have other shapes, or frozen ones other values."""
    frozen = {
        (layer.name, number)
        for layer in model.source.param.layer
        for number, param in enumerate(layer.param)
        if param.lr_mult == 0
    }
    assert isinstance(model.weights, Sequence) and isinstance(other.weights, Sequence)
    found = []
    for one, two in zip(model.weights, other.weights, strict=False):
        if one.blobs.keys() != two.blobs.keys():
            return [_layer(one.name)]
    for one, two in zip(model.weights, other.weights, strict=True):
        for number, blob in one.blobs.items():
            its = two.blobs[number]
            if blob.shape != its.shape or (
                (one.name, number) in frozen and not np.array_equal(blob.load(), its.load(), equal_nan=True)
            ):
                found.append(_layer(one.name))
    return found


def _with_bottoms(model: Model) -> Iterator[tuple[Shape, Shape]]:
    """Give the shapes of each layer's first bottom and first top; () where there is none."""
    shapes: dict[str, Shape] = {}
    for layer in model.source.param.layer:
        bottom = shapes[layer.bottom[0]] if layer.bottom else ()
        tops = model.shapes.get(layer.name, ())
        shapes.update(zip(layer.top, tops, strict=True))
        yield bottom, tops[0] if tops else ()


def _leave_open(layer: LayerParameter, shapes: Sequence[tuple[Shape, Shape]]) -> bool:
    """Give a Reshape sizes that make each of these tops of its bottom; return whether there are such."""
    dim = layer.reshape_param.shape.dim
    if all(_reshaped(dim, bottom) == top for bottom, top in shapes):
        return True
    tops = [top for _, top in shapes]
    if len({len(top) for top in tops}) > 1:
        return False
    sizes = []
    for axis, (size, *others) in enumerate(zip(*tops, strict=True)):
        kept = all(top[axis : axis + 1] == bottom[axis : axis + 1] for bottom, top in shapes)
        sizes.append(size if others == [size] * len(others) else 0 if kept else -1)
    if sizes.count(-1) > 1 or any(_reshaped(sizes, bottom) != top for bottom, top in shapes):
        return False
    dim[:] = sizes
    return True


def _reshaped(dim: Sequence[int], bottom: Shape) -> Shape | None:
    """Return what a Reshape makes of a shape; None where it does not fit."""
    if any(size == 0 and axis >= len(bottom) for axis, size in enumerate(dim)):
        return None
    sizes = [size or bottom[axis] for axis, size in enumerate(dim)]
    known = math.prod(size for size in sizes if size != -1)
    return tuple(math.prod(bottom) // known if size == -1 else size for size in sizes)


def _different_values(model: Model, other: Model, third: Model) -> list[str]:
    """Return the values of the graph that have other axes with one item than with two and three."""
    one, two, three = map(_shapes_of_values, (model, other, third))
    return [
        name
        for name in one.keys() & two.keys() & three.keys()
        if not len(one[name]) == len(two[name]) == len(three[name])
        or any(size != its == last for size, its, last in zip(one[name], two[name], three[name], strict=True))
    ]


def _shapes_of_values(model: Model) -> dict[str, Shape]:
    """Return the shapes of the graph's values that have names in the net."""
    found = {}
    for layer in model.source.param.layer:
        for top, shape in zip(layer.top, model.shapes.get(layer.name, ()), strict=False):
            blob = f"{top}@{layer.name}"
            value = model.names.get(blob if blob in model.names else top)
            if value is not None:
                found[value] = shape
    return found
