"""Trained weights in and out of a net, by layer name (Caffe: Net::CopyTrainedLayersFrom, Net::ToProto).

Files are binary NetParameter messages (`.caffemodel`, every form since 2013) or HDF5 (`.caffemodel.h5`, see
`weights_hdf5`). Where several layers have one name, the first in the file goes to the first in the net, the
second to the second; Caffe copies them all to the first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.row_parameter import RowParameter, WholeRows
from mgcaffe.engine.types import Shape
from mgcaffe.engine.weights.shards import StoredRows, find_rows, has_shards
from mgcaffe.errors import NetError, PrototxtError
from mgcaffe.prototxt import BlobProto, NetParameter, blob_array, blob_shape, fill_blob, has_field
from mgcaffe.prototxt.blobs import check_count
from mgcaffe.prototxt.stored import StoredValues

FROM_SCRATCH = "To learn this layer's parameters from scratch rather than copying from a saved net, rename the layer."
_Named = TypeVar("_Named", Layer, "SavedLayer")
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


@dataclass(frozen=True)
class CopyRow:
    """What became of one layer of a weights file, or of one layer of the net that the file lacks."""

    layer: str
    detail: str


@dataclass
class CopyReport:
    """Which layers' weights were copied, which were skipped, and which did not fit.

    `str(report)` is a table.
    """

    source: str
    copied: list[CopyRow] = field(default_factory=list)
    skipped: list[CopyRow] = field(default_factory=list)
    refused: list[CopyRow] = field(default_factory=list)

    def __str__(self) -> str:
        rows = [
            (verdict, row.layer, row.detail)
            for verdict, part in (
                ("copied", self.copied),
                ("skipped", self.skipped),
                ("refused", self.refused),
            )
            for row in part
        ]
        width = max((len(layer) for _, layer, _ in rows), default=0)
        lines = [f"  {verdict:8} {layer:{width}}  {detail}" for verdict, layer, detail in rows]
        return "\n".join([f"weights from {self.source}:", *lines])


def copy_message(layers: Sequence[Layer], net: NetParameter, source: str) -> CopyReport:
    """Copy the blobs of a NetParameter message to the layers of the same names, as `copy_saved` does."""
    return copy_saved(layers, saved_layers(net, source=source), source)


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


def copy_saved(
    layers: Sequence[Layer], saved: Sequence[SavedLayer], source: str, *, tables_too: bool = True
) -> CopyReport:
    """Copy saved layers to the layers of the same names. Nothing is copied unless everything fits.

    Args:
        layers: the net's.
        saved: the file's.
        source: what to call the file.
        tables_too: whether to copy tables whose rows lie in several processes.

    Raises:
        NetError: a layer has another number of blobs, or a blob another shape, than in the file.
    """
    report = CopyReport(source)
    ours, theirs = _by_name(layers, "parameters"), _by_name(saved, "blobs")
    pairs: list[tuple[Layer, SavedLayer]] = []
    for name, found in theirs.items():
        targets = ours.get(name, [])
        pairs += zip(targets, found, strict=False)
        reason = f"the net has only {len(targets)} of this name" if targets else "the net has no layer of this name"
        report.skipped += [CopyRow(name, reason) for layer in found[len(targets) :] if layer.blobs]
    refused_at = None
    for target, layer in pairs:
        problem = _misfit(target, layer.blobs)
        if problem:
            report.refused.append(CopyRow(layer.name, problem))
            refused_at = refused_at or target
        elif layer.blobs:
            shapes = [layer.blobs[index].shape for index in sorted(layer.blobs)]
            report.copied.append(CopyRow(layer.name, ", ".join(map(_text, shapes))))
    for name, targets in ours.items():
        found = theirs.get(name, [])
        reason = f"the file has only {len(found)} of this name" if found else "the file has no layer of this name"
        missing = [CopyRow(name, f"{reason}; keeps its values") for layer in targets[len(found) :] if layer.parameters]
        report.skipped += missing
    if refused_at is not None:
        rows = "; ".join(f"layer '{row.layer}': {row.detail}" for row in report.refused)
        raise NetError(f"weights in {source} do not fit: {rows}", location=refused_at.location(), hint=FROM_SCRATCH)
    planned = [(target.parameters[index], blob) for target, layer in pairs for index, blob in layer.blobs.items()]
    if not tables_too:
        planned = [(each, blob) for each, blob in planned if not _is_divided(each)]
    # All are read before the first is copied, so that a damaged file leaves the net as it was; and then once more, one
    # at a time, which costs little, where keeping them would cost as much memory as all weights.
    for _, blob in planned:
        if blob.chunks is None:
            blob.load()
    for parameter, blob in planned:
        whole = parameter.whole_values if isinstance(parameter, RowParameter) else None
        if whole is not None:
            _store(whole, blob)
        else:
            _copy(parameter.data, blob)
    return report


def _is_divided(parameter: Parameter) -> bool:
    return isinstance(parameter, RowParameter) and parameter.placement is not None


def _store(target: WholeRows, blob: SavedBlob) -> None:
    """Write values into rows that lie in several processes."""
    if blob.rows is not None:
        target.load(blob.rows)
        return
    start = 0
    for values in (blob.load(),) if blob.chunks is None else blob.chunks():
        target.store(start, values.reshape(-1))
        start += values.size


def _copy(target: torch.Tensor, blob: SavedBlob) -> None:
    """Copy values into a tensor of as many values."""
    flat, start = target.view(-1), 0
    for values in (blob.load(),) if blob.chunks is None else blob.chunks():
        part = flat[start : start + values.size]
        if target.device.type == "cpu":
            with np.errstate(all="ignore"):  # a double may be too large for a float: it becomes infinite
                np.copyto(part.numpy(), values.reshape(-1))
        else:
            part.copy_(torch.tensor(values).reshape(-1))
        start += values.size


def layers_to_proto(net: NetParameter, layers: Sequence[Layer], diff: bool) -> None:
    """Add every layer with its blobs to a NetParameter message.

    Args:
        net: the message.
        layers: the layers.
        diff: whether to write the gradients as well.
    """
    for layer in layers:
        message = net.layer.add()
        message.CopyFrom(layer.param)
        message.phase = layer.phase
        del message.blobs[:]
        for parameter in layer.parameters:
            blob = message.blobs.add()
            fill_blob(blob, parameter.data.cpu().numpy())
            if diff:
                fill_blob(blob, parameter.dense_diff().cpu().numpy(), diff=True)


def _by_name(layers: Sequence[_Named], blobs: str) -> dict[str, list[_Named]]:
    """Return the layers of each name that have any `blobs`, or else the first one of the name."""
    named: dict[str, list[_Named]] = {}
    for layer in layers:
        named.setdefault(layer.name, []).append(layer)
    return {name: [layer for layer in same if getattr(layer, blobs)] or same[:1] for name, same in named.items()}


def _misfit(target: Layer, blobs: Mapping[int, SavedBlob]) -> str:
    lacks = [
        index for index, parameter in enumerate(target.parameters) if index not in blobs and not _is_shared(parameter)
    ]
    if lacks or any(index >= len(target.parameters) for index in blobs):
        return f"{len(blobs)} blob(s) in the file, {len(target.parameters)} in the net"
    for index, blob in blobs.items():
        wanted = target.parameters[index].shape
        if not blob.fits(wanted):
            return f"blob {index} has shape {_text(blob.shape)} in the file, {_text(wanted)} in the net"
    return ""


def _is_shared(parameter: Parameter) -> bool:
    return parameter.owner is not None


def _text(shape: Sequence[int]) -> str:
    return "x".join(str(size) for size in shape) or "()"
