"""Weight files of either form into a net; their content says which form they have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.weights import hdf5
from mgcaffe.engine.weights.by_name import CopyReport, copy_saved
from mgcaffe.engine.weights.saved_layers import saved_layers
from mgcaffe.engine.weights.shards import find_rows, has_shards
from mgcaffe.prototxt import NetParameter, fill_blob, read_net
from mgcaffe.prototxt.stored import read_stored_net


def copy_file(layers: Sequence[Layer], path: str | Path, *, tables_too: bool = True) -> CopyReport:
    """Copy a weights file to the layers of the same names; `tables_too` as for `copy_saved`.

    Raises:
        NetError, PrototxtError: the file cannot be read, or a layer does not fit.
    """
    if hdf5.is_hdf5(path):
        return hdf5.copy_file(layers, path, tables_too=tables_too)
    stored = read_stored_net(path)
    saved = saved_layers(stored.param, stored.values, str(path))
    return copy_saved(layers, saved, str(path), tables_too=tables_too)


def read_weights(path: str | Path) -> NetParameter:
    """Read a weights file as a message whose layers hold blobs.

    Tables that are in shards beside the file are read from them.
    Of an HDF5 file the layers have names and blobs alone, in the order of the alphabet; a blob that another layer owns
    is empty.

    Raises:
        NetError, PrototxtError: the file cannot be read.
    """
    if hdf5.is_hdf5(path):
        return hdf5.read_message(path)
    net = read_net(Path(path))
    fill_from_shards(net, path)
    return net


def fill_from_shards(net: NetParameter, path: str | Path) -> None:
    """Put the tables into a net from a file that are in shards beside it.

    Raises:
        NetError: (exit code 65) a shard cannot be used.
        PrototxtError: a table is larger than protobuf's 2 GiB.
    """
    for layer in net.layer:
        for blob in layer.blobs:
            if has_shards(blob):
                rows = find_rows(blob, path)
                blob.ClearField("shards")
                fill_blob(blob, rows.load())
