"""Nets that end earlier: what comes after a layer, and what only that needs, is cut off."""

from __future__ import annotations

from mgcaffe.engine.layer import TEST, TRAIN
from mgcaffe.errors import NetError
from mgcaffe.prototxt import NetParameter
from mgcaffe.tools.surgery.edit import Edit, with_layers
from mgcaffe.tools.surgery.wiring import State, Wiring, active, find_layers


def cut_after(net: NetParameter, name: str, state: State) -> Edit:
    """Keep a layer and what it depends on; what is kept and takes part in the other phase too can still run there.

    A layer in place behind it is cut off too: its blob then holds what the layer itself wrote.

    Raises:
        NetError: there is no such layer, or it takes part in no phase.
    """
    phases = [active(net, phase, state) for phase in (TRAIN, TEST)]
    wirings = [Wiring.of([net.layer[number] for number in numbers]) for numbers in phases]
    kept = set(find_layers(net, name, f"--cut {name}")).intersection({*phases[0], *phases[1]})
    size = -1
    while len(kept) > size:  # what one phase needs can take part in the other, and need more there
        size = len(kept)
        for numbers, wiring in zip(phases, wirings, strict=True):
            ends = [(place, 0) for place, number in enumerate(numbers) if number in kept]
            kept |= {numbers[place] for place in wiring.needed(ends)}
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
