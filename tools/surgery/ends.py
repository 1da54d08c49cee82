"""Nets that end earlier: what comes after a layer, and what only that needs, is cut off."""

from __future__ import annotations

from mgcaffe.engine.layer import TEST, TRAIN
from mgcaffe.errors import NetError
from mgcaffe.prototxt import NetParameter
from mgcaffe.tools.surgery.edit import Edit, with_layers
from mgcaffe.tools.surgery.wiring import State, Wiring, active, find_layers


def cut_after(net: NetParameter, name: str, state: State) -> Edit:
    """Keep a layer and what it depends on, in the phases in which it takes part.

    A layer in place behind it is cut off too: its blob then holds what the layer itself wrote.

    Raises:
        NetError: there is no such layer, or it takes part in no phase.
    """
    goals = set(find_layers(net, name, f"--cut {name}"))
    kept: set[int] = set()
    for phase in (TRAIN, TEST):
        numbers = active(net, phase, state)
        wiring = Wiring.of([net.layer[number] for number in numbers])
        ends = [(place, 0) for place, number in enumerate(numbers) if number in goals]
        kept.update(numbers[place] for place in wiring.needed(ends))
    if not kept:
        raise NetError(f"--cut {name}: the layer takes part in neither phase with this level and these stages")
    layers = [layer for number, layer in enumerate(net.layer) if number in kept]
    removed = [layer.name for number, layer in enumerate(net.layer) if number not in kept]
    note = f"cut after '{name}': {len(removed)} layer(s) removed{_listed(removed)}"
    return Edit(with_layers(net, layers), {layer.name: layer.name for layer in layers}, (note,))


def _listed(names: list[str]) -> str:
    """Return a few names for a message."""
    shown = ", ".join(dict.fromkeys(names[:6]))
    return f" ({shown}{', ...' if len(names) > 6 else ''})" if names else ""
