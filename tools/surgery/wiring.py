"""Which layer reads which value, and which layers take part in a phase, found from the messages alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from mgcaffe.engine import registry
from mgcaffe.engine.graph import rules
from mgcaffe.errors import NetError
from mgcaffe.prototxt import LayerParameter, NetParameter, Phase, nearest

Value = tuple[int, int]
"""A layer's number and which of its tops: what a blob holds from that layer until another one writes it."""

SOURCES_KEPT = ("Input", "Parameter")
"""The types without bottoms that read no data."""
# What only looks at values.
_WATCHERS = ("Accuracy", "AUC", "NormalizedEntropy", "Silence", "HDF5Output")


@dataclass
class Wiring:
    """Who reads what in a list of layers.

    Attributes:
        reads: for each layer the values that its bottoms are.
        readers: for each value the layers that read it, with the number of their bottom.
        last: for each blob the value that it holds at the end.
    """

    reads: list[list[Value]] = field(default_factory=list)
    readers: dict[Value, list[tuple[int, int]]] = field(default_factory=dict)
    last: dict[str, Value] = field(default_factory=dict)

    @classmethod
    def of(cls, layers: Sequence[LayerParameter]) -> Wiring:
        """Follow the blobs through layers that all take part.

        Raises:
            NetError: a layer reads a blob that no earlier layer made.
        """
        wiring = cls()
        for number, layer in enumerate(layers):
            row = []
            for index, blob in enumerate(layer.bottom):
                if blob not in wiring.last:
                    raise NetError(f"Unknown bottom blob '{blob}' (layer '{layer.name}', bottom {index})")
                row.append(wiring.last[blob])
                wiring.readers[row[-1]].append((number, index))
            wiring.reads.append(row)
            for top, blob in enumerate(layer.top):
                wiring.last[blob] = (number, top)
                wiring.readers[number, top] = []
        return wiring

    def needed(self, goals: Iterable[Value]) -> set[int]:
        """Return the numbers of the layers that some values depend on, their own layers included."""
        found: set[int] = set()
        left = [layer for layer, _ in goals]
        while left:
            layer = left.pop()
            if layer not in found:
                found.add(layer)
                left += [maker for maker, _ in self.reads[layer]]
        return found

    def dependent(self, layers: Iterable[int]) -> set[int]:
        """Return the numbers of these layers and of all that depend on one of them."""
        found = set(layers)
        for number, row in enumerate(self.reads):
            if any(maker in found for maker, _ in row):
                found.add(number)
        return found

    def unread(self) -> list[Value]:
        """Return the values that no layer reads."""
        return [value for value, readers in self.readers.items() if not readers]


@dataclass(frozen=True)
class State:
    """The level and the stages of the net's state; its phase is said where it matters."""

    level: int | None = None
    stages: tuple[str, ...] = ()


def active(net: NetParameter, phase: Phase, state: State) -> list[int]:
    """Return the numbers of the layers that take part in a phase.

    Raises:
        NetError: a layer gives both include and exclude rules.
    """
    base = net.state if net.HasField("state") else None
    specs = [rules.LayerSpec(layer) for layer in net.layer]
    kept = {id(spec) for spec in rules.filter_layers(specs, rules.make_state(phase, state.level, state.stages, base))}
    return [number for number, spec in enumerate(specs) if id(spec) in kept]


def active_layers(net: NetParameter, phase: Phase, state: State) -> list[LayerParameter]:
    """Return the layers that take part in a phase."""
    return [net.layer[number] for number in active(net, phase, state)]


def is_source(layer: LayerParameter) -> bool:
    """Return whether a layer brings data into the net."""
    return not layer.bottom and layer.type not in SOURCES_KEPT


def is_loss(layer: LayerParameter) -> bool:
    """Return whether a layer is a loss, by its type or by a loss_weight of its own."""
    known = registry.layer_types().get(layer.type)
    return bool((known is not None and known.loss_weight) or any(layer.loss_weight))


def only_watches(layer: LayerParameter) -> bool:
    """Return whether a layer is a loss, an accuracy, or something else that computes no part of the prediction."""
    return layer.type in _WATCHERS or is_loss(layer)


def find_layers(net: NetParameter, name: str, flag: str) -> list[int]:
    """Return the numbers of the layers of a name.

    Args:
        net: the net.
        name: the layer's.
        flag: what the user named it in, for the message.

    Raises:
        NetError: there is none; names the nearest.
    """
    found = [number for number, layer in enumerate(net.layer) if layer.name == name]
    if not found:
        near = nearest(name, [layer.name for layer in net.layer])
        raise NetError(f"{flag}: the net has no layer '{name}'", hint=f"did you mean '{near}'?" if near else None)
    return found


def free_name(wanted: str, taken: Collection[str]) -> str:
    """Return a name that is not taken: the wanted one, or the first of it with a number behind."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}{number}"
    return name
