"""The layers of a weights file, or of a net, as what weights are copied from: names, shapes, and where values are.

Nothing is read before it is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from numpy.typing import NDArray

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.types import Shape
from mgcaffe.engine.weights.shards import StoredRows, find_rows, has_shards
from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt import BlobProto, NetParameter, blob_array, blob_shape, has_field
from mgcaffe.prototxt.blobs import check_count
from mgcaffe.prototxt.stored import StoredValues

_LEGACY_AXES = ("num", "channels", "height", "width")


@dataclass(frozen=True)
class SavedBlob:
    """One blob of a weights file.

    Attributes:
        shape: its shape.
        load: gives its values.
        is_legacy: whether it was stored as num x channels x height x width, with ones in front.
        chunks: gives the values in order and a part at a time; None where there is only `load`, which may fail.
        rows: where its rows are, if a snapshot's shards hold them; else None.
    """

    shape: Shape
    load: Callable[[], NDArray[Any]]
    is_legacy: bool = False
    chunks: Callable[[], Iterable[NDArray[Any]]] | None = None
    rows: StoredRows | None = None

    def fits(self, wanted: Shape) -> bool:
        """Return whether it can be copied to a parameter of this shape (Blob::ShapeEquals)."""
        if self.shape == wanted:
            return True
        return self.is_legacy and len(wanted) <= 4 and self.shape == (1,) * (4 - len(wanted)) + wanted


@dataclass(frozen=True)
class SavedLayer:
    """One layer of a weights file: its name, and its blobs by number. HDF5 lacks those that others own."""

    name: str
    blobs: Mapping[int, SavedBlob]


def saved_layers(
    net: NetParameter, stored: Mapping[tuple[int, int], StoredValues] | None = None, source: str = ""
) -> list[SavedLayer]:
    """Return the layers of a NetParameter message with their blobs, of which nothing is copied yet.

    Args:
        net: the message.
        stored: values that are not in the message but in a file, by the numbers of layer and blob.
        source: the file, for errors; shards that hold tables of the net lie beside it.

    Raises:
        PrototxtError: as for `blob_shape`; or there are more or fewer of these values than the shape says.
        NetError: a shard cannot be used.
    """
    elsewhere = stored or {}
    found = []
    for number, layer in enumerate(net.layer):
        blobs = {}
        for index, message in enumerate(layer.blobs):
            what = f"{source}{': ' if source else ''}layer '{layer.name}', blob {index}"
            with _naming(what):
                blob = saved_blob(message, elsewhere.get((number, index)), source)
            blobs[index] = replace(blob, load=partial(_load, blob.load, what))
        found.append(SavedLayer(layer.name, blobs))
    return found


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Say in an error without a place what is wrong."""
    try:
        yield
    except PrototxtError as error:
        if error.location is not None:
            raise
        raise PrototxtError(f"{what}: {error.message}") from None


def _load(load: Callable[[], NDArray[Any]], what: str) -> NDArray[Any]:
    with _naming(what):
        return load()


def layers_as_saved(layers: Sequence[Layer]) -> list[SavedLayer]:
    """Return a net's layers as those of a file; their values are not copied."""
    return [
        SavedLayer(
            layer.name,
            {
                number: SavedBlob(parameter.shape, partial(_values_of, parameter))
                for number, parameter in enumerate(layer.parameters)
            },
        )
        for layer in layers
    ]


def _values_of(parameter: Parameter) -> NDArray[Any]:
    values: NDArray[Any] = parameter.data.cpu().numpy()
    return values


def saved_blob(blob: BlobProto, stored: StoredValues | None, source: str) -> SavedBlob:
    """Return a blob of a message, of a file, or of shards beside the file `source`; arguments as for `saved_layers`."""
    shape = blob_shape(blob)
    if has_shards(blob):
        rows = find_rows(blob, source)
        return SavedBlob(shape, rows.load, chunks=None if rows.lacked_by else rows.chunks, rows=rows)
    is_legacy = any(has_field(blob, axis) for axis in _LEGACY_AXES)
    if stored is None:
        return SavedBlob(shape, partial(blob_array, blob), is_legacy)
    check_count(shape, stored.count)
    return SavedBlob(shape, lambda: stored.load().reshape(shape), is_legacy, stored.chunks)
