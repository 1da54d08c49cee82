"""Other names for layers: the weights, which are found by these names, follow; blobs keep theirs."""

from __future__ import annotations

from collections.abc import Mapping

from mgcaffe.errors import NetError
from mgcaffe.prototxt import NetParameter
from mgcaffe.tools.surgery.edit import Edit
from mgcaffe.tools.surgery.wiring import find_layers


def rename(net: NetParameter, names: Mapping[str, str]) -> Edit:
    """Rename layers, all at once, so that two can exchange their names.

    Args:
        net: the net.
        names: the new name of each old one.

    Raises:
        NetError: there is no layer of a name, or two layers of different names would get the same one.
    """
    for old in names:
        find_layers(net, old, f"--rename {old}={names[old]}")
    origin: dict[str, str] = {}
    for layer in net.layer:
        new = names.get(layer.name, layer.name)
        if origin.setdefault(new, layer.name) != layer.name:
            raise NetError(f"--rename: layers '{origin[new]}' and '{layer.name}' would both be called '{new}'")
    made = NetParameter()
    made.CopyFrom(net)
    for layer in made.layer:
        layer.name = names.get(layer.name, layer.name)
    return Edit(made, origin, tuple(f"layer '{old}' is now '{new}'" for old, new in names.items()))
