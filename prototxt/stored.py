"""Opens a file of weights and leaves the weights in it until they are wanted, so that they are in memory only once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgcaffe.errors import Location, PrototxtError
from mgcaffe.prototxt.files import net_source_of, read_net
from mgcaffe.prototxt.messages import BlobProto, LayerParameter, NetParameter, V1LayerParameter, message_facts
from mgcaffe.prototxt.wire_format import NotWalkable, Payload, Tree, without_payloads

_LEAST = 1 << 20
_CHUNK = 1 << 20
_TYPES = {"data": "<f4", "double_data": "<f8", "diff": "<f4", "double_diff": "<f8"}


@dataclass(frozen=True)
class StoredValues:
    """Values of a blob in a file.

    Attributes:
        path: the file.
        offset: where they begin, in bytes.
        count: how many there are.
        dtype: how they are stored.
    """

    path: Path
    offset: int
    count: int
    dtype: str

    def load(self) -> NDArray[Any]:
        """Return all of them.

        Raises:
            PrototxtError: the file has changed.
        """
        return self._read(0, self.count)

    def chunks(self) -> Iterator[NDArray[Any]]:
        """Give them in order, a few megabytes at a time.

        Raises:
            PrototxtError: as for `load`.
        """
        for start in range(0, self.count, _CHUNK):
            yield self._read(start, min(_CHUNK, self.count - start))

    def _read(self, start: int, count: int) -> NDArray[Any]:
        dtype = np.dtype(self.dtype)
        try:
            values = np.fromfile(self.path, dtype, count, offset=self.offset + start * dtype.itemsize)
        except OSError as error:
            raise PrototxtError(f"cannot be read: {error.strerror}", location=Location(str(self.path))) from None
        if values.size != count:
            raise PrototxtError("this file has become shorter", location=Location(str(self.path)))
        return values


@dataclass(frozen=True)
class StoredNet:
    """A net from a file.

    Attributes:
        param: the NetParameter in today's form. Blobs whose values were left in the file have their shapes alone.
        values: these, by the numbers of layer and blob.
    """

    param: NetParameter
    values: Mapping[tuple[int, int], StoredValues] = field(default_factory=dict)


def read_stored_net(path: str | os.PathLike[str]) -> StoredNet:
    """Read a net as `read_net` does, but for large values, of which it only finds out where they are.

    Gradients that are stored beside large values are passed over.

    Raises:
        PrototxtError: as for `read_net`.
    """
    file = Path(path)
    try:
        if file.is_file() and file.stat().st_size >= _LEAST:
            return _read(file)
    except (NotWalkable, OSError, PrototxtError):
        pass  # what reads it as a whole knows what to say
    return StoredNet(read_net(path))


def _read(path: Path) -> StoredNet:
    with path.open("rb") as file:

        def read(start: int, count: int) -> bytes:
            file.seek(start)
            return file.read(count)

        head, found = without_payloads(read, path.stat().st_size, _tree())
    if not any(found):
        raise NotWalkable
    param = net_source_of(head, str(path)).param
    # Upgrades change the numbers of layers, but not the order of their blobs.
    places = [(number, index) for number, layer in enumerate(param.layer) for index in range(len(layer.blobs))]
    if len(places) != len(found):
        raise NotWalkable
    values = {
        place: _values(path, payloads["values"])
        for place, payloads in zip(places, found, strict=True)
        if "values" in payloads
    }
    return StoredNet(param, values)


def _values(path: Path, payload: Payload) -> StoredValues:
    facts = message_facts(BlobProto()).fields
    dtype = next(dtype for name, dtype in _TYPES.items() if facts[name].number == payload.number)
    size = np.dtype(dtype).itemsize
    if payload.length % size:
        raise NotWalkable
    return StoredValues(path, payload.offset, payload.length // size, dtype)


def _tree() -> Tree:
    """Return where the values of blobs are in a NetParameter."""
    net, blob = message_facts(NetParameter()).fields, message_facts(BlobProto()).fields
    values = {blob[name].number: "values" if "data" in name else "diff" for name in _TYPES}
    layers = {"layer": LayerParameter(), "layers": V1LayerParameter()}
    return {net[name].number: {message_facts(layer).fields["blobs"].number: values} for name, layer in layers.items()}
