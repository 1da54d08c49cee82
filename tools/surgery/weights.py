"""Weights into the layers of a net: from one file or several, which must not contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mgcaffe.engine.layer import TEST, TRAIN
from mgcaffe.engine.types import Array
from mgcaffe.engine.weights.files import read_weights
from mgcaffe.errors import NetError
from mgcaffe.prototxt import BlobProto, LayerParameter, NetParameter
from mgcaffe.tools.surgery.edit import Edit, blob_of, trimmed
from mgcaffe.tools.surgery.wiring import State, active


@dataclass(frozen=True)
class Saved:
    """The layers of a name in a weights file.

    Attributes:
        file: what to call the file.
        layers: those that hold weights, in order.
    """

    file: str
    layers: list[LayerParameter]


def read_all(files: Sequence[str]) -> dict[str, Saved]:
    """Read weight files and put them together, by layer name.

    A layer that several files hold has to be the same in all of them, to the bit.

    Raises:
        NetError: files contradict each other (names all such layers), or one holds no weights.
        PrototxtError: a file cannot be read.
    """
    merged: dict[str, Saved] = {}
    conflicts = []
    for file in files:
        found = _by_name(read_weights(file))
        if not found:
            raise NetError(f"{file} holds no weights", hint="give the net's prototxt first, then files of weights")
        for name, layers in found.items():
            known = merged.setdefault(name, Saved(file, layers))
            if known.layers is not layers and not _equal(known.layers, layers):
                conflicts.append(f"'{name}' in {known.file} and {file}")
    if conflicts:
        raise NetError(
            f"the weights of {len(conflicts)} layer(s) differ between files: {'; '.join(conflicts)}",
            hint="rename the layers of one net first (engine edit NET WEIGHTS -o OUT.prototxt --rename OLD=NEW)",
        )
    return merged


def attach(net: NetParameter, saved: dict[str, Saved], state: State) -> Edit:
    """Put weights into the layers of the same names.

    Where several layers have one name, the first in the file goes to the first in the net; one alone goes to all if no
    two of them take part in the same phase.

    Raises:
        NetError: the net has none of the layers, or an HDF5 file lacks a parameter, and no layer that shares it has it.
    """
    made = NetParameter()
    made.CopyFrom(net)
    by_name: dict[str, list[int]] = {}
    for number, layer in enumerate(made.layer):
        by_name.setdefault(layer.name, []).append(number)
    phases = [set(active(net, phase, state)) for phase in (TRAIN, TEST)]
    left = []
    for name, found in saved.items():
        numbers = by_name.get(name, [])
        layers = found.layers
        if len(layers) == 1 and all(len(phase.intersection(numbers)) <= 1 for phase in phases):
            layers = layers * len(numbers)
        if not numbers or len(layers) > len(numbers):
            left.append(name)
        for number, layer in zip(numbers, layers, strict=False):
            del made.layer[number].blobs[:]
            made.layer[number].blobs.extend(layer.blobs)
    if saved and len(left) == len(saved):
        raise NetError(
            f"the net has no layer of a name that {' or '.join(dict.fromkeys(each.file for each in saved.values()))} "
            f"has weights for: {', '.join(sorted(left))}"
        )
    _complete(made)
    notes = (f"left out, since the net has no layer of the name: weights of {', '.join(sorted(left))}",) if left else ()
    return Edit(made, {layer.name: layer.name for layer in made.layer}, notes)


def _by_name(net: NetParameter) -> dict[str, list[LayerParameter]]:
    found: dict[str, list[LayerParameter]] = {}
    for layer in net.layer:
        if layer.blobs:
            found.setdefault(layer.name, []).append(layer)
    return found


def _equal(one: Sequence[LayerParameter], two: Sequence[LayerParameter]) -> bool:
    if [len(layer.blobs) for layer in one] != [len(layer.blobs) for layer in two]:
        return False
    return all(
        _same(blob_of(a, index), blob_of(b, index))
        for a, b in zip(one, two, strict=True)
        for index in range(len(a.blobs))
        if a.blobs[index].ByteSize() and b.blobs[index].ByteSize()  # else a shared one, which HDF5 has elsewhere
    )


def _same(one: Array, two: Array) -> bool:
    """Return whether two blobs are equal; ones in front of a shape, as old files have them, do not count."""
    return trimmed(one.shape) == trimmed(two.shape) and np.array_equal(one.ravel(), two.ravel(), equal_nan=True)


def _complete(net: NetParameter) -> None:
    """Fill blobs that an HDF5 file stores with the layer that owns them, by the name of the shared parameter."""
    owners: dict[str, BlobProto] = {}
    for layer in net.layer:
        for spec, blob in zip(layer.param, layer.blobs, strict=False):
            if spec.name and blob.ByteSize():
                owners.setdefault(spec.name, blob)
    for layer in net.layer:
        for index in range(max(len(layer.blobs), len(layer.param))):
            name = layer.param[index].name if index < len(layer.param) else ""
            if index < len(layer.blobs):
                if layer.blobs[index].ByteSize():
                    continue
                if name not in owners:
                    lacks = f"the weights lack blob {index} of layer '{layer.name}'"
                    raise NetError(f"{lacks}, and no other layer shares it")
                layer.blobs[index].CopyFrom(owners[name])
            elif index == len(layer.blobs) and name in owners:
                layer.blobs.add().CopyFrom(owners[name])
