"""Weights in HDF5 (`.caffemodel.h5`; Caffe: Net::ToHDF5, Net::CopyTrainedLayersFromHDF5).

    /data/<layer>/<i>      the values of parameter i, for parameters that own them
                           (of a table in shards: a dataset without values, whose attribute `shards` names them)
    /diff/<layer>/<i>      gradients, of shared parameters too, if they were asked for
    /layers/<n>/...        the n-th layer of the net, where its name cannot stand above: a uint8 attribute `name`,
                           and groups `data` and `diff`

A name that is not UTF-8 is read as Latin-1, as everywhere (prototxt/foreign_text.py).

A layer's name with `/` in it makes nested groups, as HDF5 itself takes a path. Caffe can neither write such a
file (it stops) nor find nested layers when it reads one (it passes over them). Names that cannot stand under
/data are those that come a second time, those that are no path (empty, `a//b`), and those that lie inside
another layer's group (`a/b` beside a layer `a`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from mgcaffe.engine.checks.said_once import warn_once
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.row_parameter import TableInShards
from mgcaffe.engine.weights.by_name import CopyReport, copy_saved
from mgcaffe.engine.weights.hdf5_image import is_hdf5, make_image, open_image, reading
from mgcaffe.engine.weights.saved_layers import SavedBlob, SavedLayer, saved_blob
from mgcaffe.errors import Location, NetError, SnapshotError
from mgcaffe.errors.whole_files import Content, write_whole
from mgcaffe.prototxt import BlobProto, NetParameter, fill_blob
from mgcaffe.prototxt.foreign_text import foreign_note, text_of

__all__ = [
    "copy_file", "encode_hdf5", "encode_saved", "is_hdf5", "load_hdf5", "read_message", "read_reference", "save_hdf5",
    "write_reference",
]  # fmt: skip

_log = logging.getLogger("mgcaffe.engine")

_ASIDE = "layers"
_MAX_BLOBS = 1000


class HasLayers(Protocol):
    """What of a net is read here."""

    @property
    def layers(self) -> Sequence[Layer]:
        """Its layers in order."""


def save_hdf5(net: HasLayers, path: str | os.PathLike[str], diff: bool = False) -> None:
    """Write a net's weights.

    Args:
        net: the Net.
        path: the file, which is then whole or not there. Caffe reads it only if its name ends in `.h5`.
        diff: whether to write the gradients as well.

    Raises:
        SnapshotError: (exit code 73) the file cannot be written.
    """
    try:
        write_whole(path, encode_hdf5(net.layers, diff))
    except OSError as error:
        raise SnapshotError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from None


def load_hdf5(net: HasLayers, path: str | os.PathLike[str]) -> CopyReport:
    """Copy weights to the layers of the same names.

    Raises:
        NetError: the file cannot be read, holds no weights, or a layer does not fit.
    """
    return copy_file(net.layers, path)


def encode_hdf5(layers: Sequence[Layer], diff: bool) -> Content:
    """Return the content of the file."""

    def fill(file: Any) -> None:
        file.create_group("data")
        if diff:
            file.create_group("diff")
        rows = [(layer.name, bool(layer.parameters)) for layer in layers]
        for layer, paths in zip(layers, _groups(file, rows), strict=True):
            if paths is not None:
                _write_layer(file, layer, paths, diff)

    return make_image(fill)


def encode_saved(saved: Sequence[SavedLayer]) -> Content:
    """Return the content of a file for weights without a net, as another file held them."""

    def fill(file: Any) -> None:
        file.create_group("data")
        rows = [(layer.name, bool(layer.blobs)) for layer in saved]
        for layer, paths in zip(saved, _groups(file, rows), strict=True):
            for number, blob in layer.blobs.items():
                assert paths is not None
                file.require_group(paths[0])[str(number)] = blob.load()

    return make_image(fill)


def copy_file(layers: Sequence[Layer], path: str | os.PathLike[str], *, tables_too: bool = True) -> CopyReport:
    """Copy a file's weights to the layers of the same names; as `load_hdf5`, and `tables_too` as for `copy_saved`."""
    source = os.fspath(path)
    fail = _failure(source)
    with open_image(source, fail) as file:
        with reading(fail):
            saved = list(_saved_layers(file, source))
        return copy_saved(layers, _ordered(saved, layers), source, tables_too=tables_too)


def read_message(path: str | os.PathLike[str]) -> NetParameter:
    """Read a file's weights as a message: layers with names and blobs; a blob that the file lacks is empty.

    Raises:
        NetError: the file cannot be read, or holds no weights.
    """
    source = os.fspath(path)
    fail = _failure(source)
    net = NetParameter()
    with open_image(source, fail) as file, reading(fail):
        for saved in _saved_layers(file, source):
            layer = net.layer.add(name=saved.name)
            last = max(saved.blobs, default=-1)
            if last >= _MAX_BLOBS:
                raise fail(f"layer '{saved.name}' has a blob {last}; no layer has so many")
            for number in range(last + 1):
                blob = layer.blobs.add()
                if number in saved.blobs:
                    fill_blob(blob, saved.blobs[number].load())
    return net


def _failure(source: str) -> Callable[[str], NetError]:
    return lambda reason: NetError(f"weights in {source} cannot be read: {reason}")


def _groups(file: Any, rows: Sequence[tuple[str, bool]]) -> Iterator[tuple[str, str] | None]:
    """Return where each layer's values and gradients go; None: nowhere, and it has none.

    Args:
        file: the file.
        rows: the name of each layer, and whether it has parameters.
    """
    for index, ((name, has_parameters), fits) in enumerate(zip(rows, _are_paths(rows), strict=True)):
        if fits:
            yield f"data/{name}", f"diff/{name}"
        elif has_parameters:
            aside = file.create_group(f"{_ASIDE}/{index}")
            aside.attrs["name"] = np.frombuffer(name.encode(), np.uint8)
            yield f"{aside.name}/data", f"{aside.name}/diff"
        else:
            yield None


def _are_paths(rows: Sequence[tuple[str, bool]]) -> Iterator[bool]:
    """Say of each layer whether its name can stand under /data."""
    names = {name for name, _ in rows}
    seen: set[str] = set()
    for name, has_parameters in rows:
        parts = name.split("/")
        outer = {"/".join(parts[:count]) for count in range(1, len(parts))}
        is_path = not {"", "."} & set(parts) and "\0" not in name
        yield is_path and name not in seen and not outer & names
        # A layer without parameters needs no more than that a group of its name is there.
        if has_parameters:
            seen.add(name)


def _write_layer(file: Any, layer: Layer, paths: tuple[str, str], diff: bool) -> None:
    data_path, diff_path = paths
    # The layers' groups may be there already: as part of the path to another one.
    data = file.require_group(data_path)
    for number, parameter in enumerate(layer.parameters):
        if isinstance(parameter, TableInShards):
            if parameter.owner is None:
                write_reference(data, str(number), parameter.reference)
            continue
        if parameter.owner is None:
            data[str(number)] = parameter.data.cpu().numpy()
        if diff:
            file.require_group(diff_path)[str(number)] = parameter.dense_diff().cpu().numpy()


def _saved_layers(file: Any, source: str) -> Iterator[SavedLayer]:
    """Return the layers of a file: those under their names, then those aside."""
    import h5py

    if not isinstance(file.get("data"), h5py.Group):
        what = "a dataset" if "data" in file else "missing"
        raise NetError(f"{source} is HDF5 and holds no weights of a net: its group 'data' is {what}")
    yield from _named_layers(file["data"], source)
    aside = file.get(_ASIDE)
    for index in sorted(aside, key=_number) if isinstance(aside, h5py.Group) else ():
        name = text_of(bytes(aside[index].attrs["name"]))
        blobs = {_number(key): _saved_blob(values, source) for key, values in aside[index]["data"].items()}
        yield SavedLayer(name, blobs)


def _named_layers(data: Any, source: str) -> Iterator[SavedLayer]:
    """Return the layers under /data. A group that holds nothing but groups is part of names, no layer."""
    import h5py

    found: dict[str, dict[int, SavedBlob]] = {}
    foreign: dict[str, None] = {}

    # Each group is visited once, also where links make a circle.
    def visit(path: str | bytes, item: Any) -> None:
        name = path if isinstance(path, str) else text_of(path)  # h5py gives bytes where they are not UTF-8
        layer, _, number = name.rpartition("/")
        if isinstance(item, h5py.Group) and not len(item):
            layer = name
            found[layer] = {}
        elif isinstance(item, h5py.Dataset):
            if not layer or str(_number(number)) != number:
                raise NetError(f"{source} is HDF5 and holds no weights of a net: dataset '/data/{name}' is none")
            found.setdefault(layer, {})[int(number)] = _saved_blob(item, source)
        else:
            return
        if isinstance(path, bytes):
            foreign[layer] = None

    data.visititems(visit)
    if foreign:
        warn_once(_log, foreign_note([(Location(source), "the name of a layer", name) for name in foreign]))
    for name, blobs in found.items():
        yield SavedLayer(name, blobs)


def write_reference(group: Any, name: str, blob: BlobProto) -> None:
    """Write what stands for values in shards: a dataset without values, with the blob as its attribute `shards`."""
    import h5py

    group[name] = h5py.Empty("f4")
    group[name].attrs["shards"] = np.frombuffer(blob.SerializeToString(), np.uint8)


def read_reference(values: Any) -> BlobProto | None:
    """Return the blob that `write_reference` wrote; None: this dataset has values.

    Raises:
        ValueError: it is damaged.
    """
    if values.shape is not None or "shards" not in values.attrs:
        return None
    try:
        return BlobProto.FromString(np.asarray(values.attrs["shards"], np.uint8).tobytes())
    except DecodeError as error:
        raise ValueError(str(error)) from None


def _saved_blob(values: Any, source: str) -> SavedBlob:
    if (blob := read_reference(values)) is not None:
        return saved_blob(blob, None, source)
    if values.shape is None:
        raise NetError(f"dataset '{values.name}' in {source} is empty")
    if values.dtype.kind not in "fiu":
        raise NetError(f"dataset '{values.name}' in {source} holds no numbers ({values.dtype})")

    def load() -> NDArray[Any]:
        with reading(_failure(source)):
            array = np.asarray(values[()])
        return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)

    return SavedBlob(tuple(values.shape), load)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else -1


def _ordered(saved: list[SavedLayer], layers: Sequence[Layer]) -> list[SavedLayer]:
    """Sort into the order of the net: HDF5 has them in that of the alphabet."""
    places = {layer.name: index for index, layer in reversed(list(enumerate(layers)))}
    return sorted(saved, key=lambda layer: places.get(layer.name, len(places)))
