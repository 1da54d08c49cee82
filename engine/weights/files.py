"""Weight files of either form into a net; their content says which form they have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.weights import hdf5
from mgcaffe.engine.weights.by_name import CopyReport, copy_saved, saved_layers
from mgcaffe.prototxt import NetParameter, read_net
from mgcaffe.prototxt.stored import read_stored_net


def copy_file(layers: Sequence[Layer], path: str | Path) -> CopyReport:
    """Copy a weights file to the layers of the same names.

    Raises:
        NetError, PrototxtError: the file cannot be read, or a layer does not fit.
    """
    if hdf5.is_hdf5(path):
        return hdf5.copy_file(layers, path)
    stored = read_stored_net(path)
    return copy_saved(layers, saved_layers(stored.param, stored.values, str(path)), str(path))


def read_weights(path: str | Path) -> NetParameter:
    """Read a weights file as a message whose layers hold blobs.

    Of an HDF5 file the layers have names and blobs alone, in the order of the alphabet; a blob that another layer owns
    is empty.

    Raises:
        NetError, PrototxtError: the file cannot be read.
    """
    return hdf5.read_message(path) if hdf5.is_hdf5(path) else read_net(Path(path))
