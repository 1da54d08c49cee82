"""Parameters that share their values: by name within a net, by layer name between nets (Caffe: net.cpp)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeVar

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.prototxt import ParamSpec


class _Named(Protocol):
    @property
    def name(self) -> str:
        """The layer's name."""


_Layer = TypeVar("_Layer", bound=_Named)


def by_name(layers: Sequence[_Layer], weights: str) -> dict[str, list[_Layer]]:
    """Return the layers of each name that have any weights, or else the first one of the name, in order.

    Args:
        layers: a net's or a file's.
        weights: the attribute that holds a layer's weights.
    """
    named: dict[str, list[_Layer]] = {}
    for layer in layers:
        named.setdefault(layer.name, []).append(layer)
    return {name: [layer for layer in same if getattr(layer, weights)] or same[:1] for name, same in named.items()}


def share_by_name(layers: Sequence[Layer]) -> list[tuple[int, str, Parameter]]:
    """Give every named parameter the first one of its name as owner.

    Returns:
        (layer index, layer name, parameter) of the parameters that own their values, in layer order.

    Raises:
        NetError: the shapes (under PERMISSIVE: the counts) or the explicit multipliers differ.
    """
    owners: dict[str, tuple[Layer, int]] = {}
    owned: list[tuple[int, str, Parameter]] = []
    for layer_index, layer in enumerate(layers):
        for index, parameter in enumerate(layer.parameters):
            if parameter.name and parameter.name in owners:
                owner_layer, owner_index = owners[parameter.name]
                _join(layer, index, owner_layer, owner_index)
                continue
            if parameter.name:
                owners[parameter.name] = (layer, index)
            owned.append((layer_index, layer.name, parameter))
    return owned


def bind_shared(layers: Sequence[Layer]) -> None:
    """Point the parameters that have an owner at the owner's values and gradient.

    Raises:
        NetError: the owner's filters are another net's, which keeps them with channels last, and the shapes differ.
    """
    for layer in layers:
        for parameter in layer.parameters:
            if parameter.owner is not None:
                if isinstance(parameter, RowParameter):
                    parameter.share(parameter.owner)  # type: ignore[arg-type] # a RowParameter too
                    if parameter.owner.lr_mult == 0:  # no norm takes in the gradients of tables
                        parameter.wanted = parameter.owner.wanted = False
                else:
                    _check_order(layer, parameter, parameter.owner)
                    parameter.data = parameter.owner.data.view(parameter.shape)
                    parameter.diff = parameter.owner.diff.view(parameter.shape)
                parameter.lr_mult, parameter.decay_mult = parameter.owner.lr_mult, parameter.owner.decay_mult


def bind_to_net(layers: Sequence[Layer], others: Sequence[Layer]) -> set[int]:
    """Point the parameters of layers at those of the same-named layers of another net.

    Where several layers have one name, the first is bound to the other net's first, the second to its second (Caffe
    binds the first to the last and leaves the others alone); layers without parameters do not count.

    Args:
        layers: a net's.
        others: the other net's.

    Returns:
        The ids of the parameters bound.

    Raises:
        NetError: the numbers of parameters or their shapes differ.
    """
    bound: set[int] = set()
    lenders = by_name(others, "parameters")
    borrowers = by_name(layers, "parameters")
    pairs = [pair for name, mine in borrowers.items() for pair in zip(mine, lenders.get(name, ()), strict=False)]
    for layer, other in pairs:
        if len(other.parameters) != len(layer.parameters):
            layer.fail(
                f"cannot share weights with the other net's layer of this name: {len(layer.parameters)}"
                f" parameter(s) here, {len(other.parameters)} there"
            )
        for index, (mine, theirs) in enumerate(zip(layer.parameters, other.parameters, strict=True)):
            if mine.shape != theirs.shape:
                layer.fail(
                    f"cannot share parameter {index} with the other net's layer of this name: shapes"
                    f" {_text(mine.shape)} and {_text(theirs.shape)} differ"
                )
            if isinstance(theirs, RowParameter) and not isinstance(mine, RowParameter):
                layer.fail(
                    f"cannot share parameter {index} with the other net's layer of this name: that is the table of an"
                    " EmbeddingBag, whose gradient is kept by rows"
                )
            mine.data, mine.diff = theirs.data, theirs.diff
            if isinstance(mine, RowParameter) and isinstance(theirs, RowParameter):
                mine.share(theirs)
            bound.add(id(mine))
    return bound


def _join(layer: Layer, index: int, owner_layer: Layer, owner_index: int) -> None:
    mine, owner = layer.parameters[index], owner_layer.parameters[owner_index]
    what = f"Cannot share parameter '{mine.name}' of layer '{owner_layer.name}' with layer '{layer.name}'"
    spec = layer.param.param[index]
    if mine.measured != owner.measured:
        layer.fail(f"{what}: one of the two is a statistic, which is measured and not learned", "param")
    if isinstance(mine, RowParameter) != isinstance(owner, RowParameter):
        layer.fail(
            f"{what}: one of the two is the table of an EmbeddingBag, whose gradient is kept by rows",
            "param",
            hint="let layers of type EmbeddingBag alone share the table (bags of one id each are what Embed looks up)",
        )
    if spec.share_mode == ParamSpec.PERMISSIVE and not isinstance(mine, RowParameter):
        if math.prod(mine.shape) != math.prod(owner.shape):
            layer.fail(f"{what}: counts {owner.count} and {mine.count} differ", "param")
    elif mine.shape != owner.shape:
        layer.fail(
            f"{what}: shapes {_text(owner.shape)} and {_text(mine.shape)} differ",
            "param",
            hint="share_mode: PERMISSIVE shares blobs of equal count and different shape.",
        )
    for field in ("lr_mult", "decay_mult"):
        _merge_multiplier(layer, what, field, mine, owner)
    mine.owner = owner.owner or owner


def _check_order(layer: Layer, mine: Parameter, owner: Parameter) -> None:
    """Refuse to read values with channels last in another shape.

    Only filters without a name are kept so, and within a net those share with no others.
    """
    if mine.shape != owner.shape and not owner.data.is_contiguous():
        layer.fail(
            f"cannot share parameter '{mine.name}' in two shapes, {_text(owner.shape)} and {_text(mine.shape)}: its"
            " values are filters of another net, which keeps them with channels last",
            "param",
            hint=f'name these filters in that net too: param {{ name: "{mine.name}" }} keeps them in Caffe\'s order',
        )


def _merge_multiplier(layer: Layer, what: str, field: str, mine: Parameter, owner: Parameter) -> None:
    """Check that two explicit multipliers agree; let an explicit one win over an implicit one."""
    given = owner.explicit_multipliers
    if field not in mine.explicit_multipliers:
        return
    value = mine.explicit_multipliers[field]
    if field in given and given[field] != value:
        layer.fail(f"{what}: {field} {given[field]:g} and {value:g} differ", "param")
    given[field] = value
    setattr(owner, field, value)


def _text(shape: Sequence[int]) -> str:
    return "x".join(str(size) for size in shape) or "()"
