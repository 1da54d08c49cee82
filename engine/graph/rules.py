"""The rules that turn the layers of a prototxt into the layers that run (Caffe: net.cpp, insert_splits.cpp).

First the layers that the net's state (phase, level, stages) leaves out are dropped; then a Split layer is put
behind every blob that more than one layer reads, so that each gradient has exactly one source. Both are pure
functions over lists of `LayerSpec`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mgcaffe.engine import registry
from mgcaffe.errors import Location, NetError
from mgcaffe.prototxt import BlobProto, LayerParameter, NetState, NetStateRule, Phase, Source
from mgcaffe.prototxt.blobs import without_blobs


@dataclass(frozen=True)
class LayerSpec:
    """A LayerParameter message and, where it is known, its place in the user's file.

    Attributes:
        param: the message.
        source: its place, or None.
        bottoms: the bottoms as the user named them, where `param` names outputs of Splits instead.
        blobs: the weights that the user wrote into the layer, where `param` is a copy without them.
    """

    param: LayerParameter
    source: Source | None = None
    bottoms: tuple[str, ...] = ()
    blobs: Sequence[BlobProto] = ()

    def location(self, field: str | None = None, index: int = 0) -> Location | None:
        """Return where the layer or one of its fields stands."""
        if self.source is None:
            return None
        return self.source.field(field, index) if field else self.source.location


def make_state(
    phase: Phase, level: int | None = None, stages: Sequence[str] = (), base: NetState | None = None
) -> NetState:
    """Return a NetState: `base` (a net's own state) with this phase and level, and these stages beside its own.

    A level of None leaves that of `base`, 0 replaces it. Empty stages are passed over.
    """
    state = NetState()
    if base is not None:
        state.CopyFrom(base)
    state.phase = phase
    if level is not None:
        state.level = level
    state.stage.extend(stage for stage in stages if stage)
    return state


def meets_rule(state: NetState, rule: NetStateRule) -> bool:
    """Return whether a state meets a NetStateRule: its phase, its level range, every stage, no forbidden stage."""
    if rule.HasField("phase") and rule.phase != state.phase:
        return False
    if rule.HasField("min_level") and state.level < rule.min_level:
        return False
    if rule.HasField("max_level") and state.level > rule.max_level:
        return False
    stages = set(state.stage)
    return stages.issuperset(rule.stage) and stages.isdisjoint(rule.not_stage)


def filter_layers(layers: Sequence[LayerSpec], state: NetState) -> list[LayerSpec]:
    """Return the layers that take part in this state.

    A layer with `include` rules takes part if one is met; one with `exclude` rules unless one is met.

    Raises:
        NetError: a layer gives both kinds of rules.
    """
    kept = []
    for spec in layers:
        param = spec.param
        if len(param.include) and len(param.exclude):
            raise NetError(
                f"layer '{param.name}' gives both include and exclude rules; only one kind is possible",
                location=spec.location("exclude"),
            )
        if len(param.include):
            takes_part = any(meets_rule(state, rule) for rule in param.include)
        else:
            takes_part = not any(meets_rule(state, rule) for rule in param.exclude)
        if takes_part:
            kept.append(spec)
    return kept


def split_layer_name(layer: str, blob: str, top: int) -> str:
    """Caffe's name of the Split behind a top."""
    return f"{blob}_{layer}_{top}_split"


def split_blob_name(layer: str, blob: str, top: int, copy: int) -> str:
    """Caffe's name of one output of that Split."""
    return f"{blob}_{layer}_{top}_split_{copy}"


def layers_that_run(layers: Sequence[LayerSpec], state: NetState) -> list[LayerSpec]:
    """Return the layers that take part in this state, with Splits between them.

    Raises:
        NetError: as for `filter_layers` and `insert_splits`; layers left out that would make the blob are named.
    """
    kept = filter_layers(layers, state)
    taking_part = {id(spec) for spec in kept}
    makers: dict[str, str] = {}
    for spec in layers:
        if id(spec) not in taking_part:
            for blob in set(spec.param.top) - set(spec.param.bottom):
                makers.setdefault(blob, spec.param.name)
    stages = f"stages {', '.join(state.stage)}" if state.stage else "no stages"
    where = f"phase {Phase.Name(state.phase)}, level {state.level}, {stages}"
    hints = {
        blob: f"Rules leave out what makes it, as layer '{name}', in {where}: choose another phase, level or stage."
        for blob, name in makers.items()
    }
    return insert_splits(kept, hints)


def insert_splits(layers: Sequence[LayerSpec], left_out: Mapping[str, str] | None = None) -> list[LayerSpec]:
    """Put a Split behind every top that is read more than once.

    A top that is a loss (it has a loss weight) counts one reader more: the Split's output 0 then carries the
    loss weight and the readers start at output 1. A name that in-place layers write again stands for the last
    top of that name so far.

    Args:
        layers: those that run.
        left_out: by blob that other layers would make, a hint for the error about it.

    Raises:
        NetError: a layer reads a blob that no earlier layer made.
    """
    producer: dict[str, tuple[int, int]] = {}
    readers: dict[tuple[int, int], int] = {}
    read_from: dict[tuple[int, int], tuple[int, int]] = {}
    weights: dict[tuple[int, int], float] = {}
    for layer, spec in enumerate(layers):
        for index, blob in enumerate(spec.param.bottom):
            if blob not in producer:
                raise NetError(
                    f"Unknown bottom blob '{blob}' (layer '{spec.param.name}', bottom {index})",
                    location=spec.location("bottom", index),
                    hint=(left_out or {}).get(blob) or _known_blobs(blob, producer),
                )
            read_from[layer, index] = producer[blob]
            readers[producer[blob]] = readers.get(producer[blob], 0) + 1
        for index, blob in enumerate(spec.param.top):
            producer[blob] = (layer, index)
            weights[layer, index] = _loss_weight(spec.param, index)
    for top, weight in weights.items():
        if weight and top in readers:
            readers[top] += 1
    return _with_splits(layers, readers, read_from, weights)


def _with_splits(
    layers: Sequence[LayerSpec],
    readers: dict[tuple[int, int], int],
    read_from: dict[tuple[int, int], tuple[int, int]],
    weights: dict[tuple[int, int], float],
) -> list[LayerSpec]:
    result: list[LayerSpec] = []
    used: dict[tuple[int, int], int] = {}
    for layer, spec in enumerate(layers):
        param = _copy(spec.param)
        for index, blob in enumerate(param.bottom):
            top = read_from[layer, index]
            if readers[top] > 1:
                copy = used.get(top, 1 if weights[top] else 0)
                used[top] = copy + 1
                param.bottom[index] = split_blob_name(layers[top[0]].param.name, blob, top[1], copy)
        result.append(LayerSpec(param, spec.source, tuple(spec.param.bottom), spec.param.blobs))
        for index, blob in enumerate(spec.param.top):
            if readers.get((layer, index), 0) > 1:
                result.append(
                    LayerSpec(_split(param, blob, index, readers[layer, index], weights[layer, index]), spec.source)
                )
    return result


def _copy(param: LayerParameter) -> LayerParameter:
    """Return a copy of a layer's message without its weights, of which a net would hold a second copy for good."""
    if param.blobs:
        return without_blobs(param)
    copy = LayerParameter()
    copy.CopyFrom(param)
    return copy


def _split(param: LayerParameter, blob: str, top: int, copies: int, weight: float) -> LayerParameter:
    """Return the Split behind a top, and take the loss weight away from the layer that made the top."""
    split = LayerParameter(name=split_layer_name(param.name, blob, top), type="Split")
    split.bottom.append(blob)
    split.top.extend(split_blob_name(param.name, blob, top, copy) for copy in range(copies))
    if weight:
        split.loss_weight.extend([weight] + [0.0] * (copies - 1))
        given = list(param.loss_weight) or [0.0] * len(param.top)
        given[top] = 0.0
        del param.loss_weight[:]
        param.loss_weight.extend(given)
    return split


def _loss_weight(param: LayerParameter, top: int) -> float:
    """Return the loss weight of a top: the prototxt's, else the layer type's own (1 for top 0 of a loss)."""
    if top < len(param.loss_weight):
        return float(param.loss_weight[top])
    if top:
        return 0.0
    layer_class = registry.layer_types().get(param.type)
    return layer_class.loss_weight if layer_class is not None else 0.0


def _known_blobs(blob: str, producer: dict[str, tuple[int, int]]) -> str:
    near = difflib.get_close_matches(blob, producer, n=1)
    if near:
        return f"Did you mean '{near[0]}'?"
    return "No earlier layer makes it."
