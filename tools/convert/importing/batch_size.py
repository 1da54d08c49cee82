"""Nets that hold for any batch size, by what is different in the same model at another size.

A graph has numbers where a module computes with the batch size: attention's heads are (steps, items x heads, ...), and
a Reshape layer that has these sizes holds for one batch size alone. Where the model can be made at another one, the
axes whose sizes differ are left open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mgcaffe.errors import EngineError
from mgcaffe.prototxt import LayerParameter
from mgcaffe.tools.convert.importing.layers_made import moves_first_axis
from mgcaffe.tools.convert.importing.values import Shape
from mgcaffe.tools.convert.model import Model

_Model = TypeVar("_Model", bound=Model)


def for_any_batch(model: _Model, at: Callable[[int], _Model] | None) -> tuple[_Model, list[str]]:
    """Return a net that holds for any batch size, and the layers that hold for that of the model alone.

    Args:
        model: the net at the batch size that is asked for, the first axis of its first input.
        at: makes it at another one; None: it is the only one that there is.
    """
    size = _inputs(model)[0].input_param.shape[0].dim[0]
    bound = _with_sizes(model, size)
    if not bound or at is None:
        return model, bound
    try:
        # At 1 an axis of one item is like any other axis of size 1.
        one, other = (at(2), at(3)) if size == 1 else (model, at(size + 1))
    except EngineError:
        return model, bound
    if _structure(one) != _structure(other):
        return model, bound
    bound = _open_sizes(one, other)
    for layer, wanted in zip(_inputs(one), _inputs(model), strict=True):
        layer.input_param.CopyFrom(wanted.input_param)
    return one, bound


def notes_on_sizes(bound: Sequence[str]) -> list[str]:
    """Return a note on layers that hold for one batch size alone."""
    if not bound:
        return []
    others = f" and {len(bound) - 1} more" if bound[1:] else ""
    return [f"for this batch size alone, of which the graph has numbers: layer '{bound[0]}'{others}"]


def _with_sizes(model: Model, size: int) -> list[str]:
    """Return the layers that may hold for one batch size alone.

    These are Reshape layers that do not leave the first axis as it is, and with one item, where any axis of size 1 may
    be taken for that of the items, all that give another shape behind a layer that moves the first axis.
    """
    found, moved = [], False
    for layer in model.source.param.layer:
        moved = moved or moves_first_axis(layer)
        given = layer.type == "Reshape" and layer.reshape_param.shape.dim[:1] != [0]
        if given or (moved and size == 1 and layer.type in ("Reshape", "Flatten")):
            found.append(layer.name)
    return found


def _inputs(model: Model) -> list[LayerParameter]:
    return [layer for layer in model.source.param.layer if layer.type == "Input"]


def _structure(model: Model) -> list[tuple[str, list[str], list[str]]]:
    return [(layer.name, list(layer.bottom), list(layer.top)) for layer in model.source.param.layer]


def _open_sizes(model: Model, other: Model) -> list[str]:
    """Leave the sizes of Reshape layers open that differ, and return the layers that differ in something else."""
    bound = []
    for layer, its in zip(model.source.param.layer, other.source.param.layer, strict=True):
        if layer.type == "Reshape":
            (shape,), (its_shape,) = model.shapes[layer.name], other.shapes[layer.name]
            if not _leave_open(layer, shape, its_shape):
                bound.append(layer.name)
        elif layer.type != "Input" and layer != its:
            bound.append(layer.name)
    return bound


def _leave_open(layer: LayerParameter, shape: Shape, other: Shape) -> bool:
    """Leave the axis of a Reshape open that differs; return whether there is no more than one."""
    axes = [axis for axis, (size, its) in enumerate(zip(shape, other, strict=True)) if size != its]
    if len(axes) == 1 and not (axes == [0] and layer.reshape_param.shape.dim[0] == 0):
        layer.reshape_param.shape.dim[:] = [-1 if axis == axes[0] else size for axis, size in enumerate(shape)]
    return len(axes) < 2
