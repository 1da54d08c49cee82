"""The HDF5 form of a solverstate (`.solverstate.h5`; Caffe: sgd_solver.cpp).

/iter, /current_step   one int32 each
/learned_net           the path of the weights, a string of fixed length that ends with a zero byte
/history/<i>           the histories, parameter by parameter; those of tables in shards as in weights
/iter_last_event, /minimum_loss   one each, with lr_policy `plateau`, as SSD's fork has them
/engine_state          our EngineState message as bytes, which Caffe skips
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from mgcaffe.engine.weights.hdf5 import read_reference, write_reference
from mgcaffe.engine.weights.hdf5_image import make_image, open_image, reading
from mgcaffe.engine.weights.shards import find_rows
from mgcaffe.errors import PrototxtError, SnapshotError
from mgcaffe.errors.whole_files import Content
from mgcaffe.prototxt import BlobProto, EngineState
from mgcaffe.solvers.rates.plateau import PlateauState
from mgcaffe.solvers.snapshots.progress import Progress, add_engine_state, checked_progress, engine_state
from mgcaffe.solvers.snapshots.state import SavedState, only_weights, unreadable

_MAX_PATH_BYTES = 1 << 16


def encode_state_hdf5(progress: Progress, learned_net: str, history: Sequence[torch.Tensor | BlobProto]) -> Content:
    """Encode the file; arguments as for `encode_state`."""

    def fill(file: Any) -> None:
        file["iter"] = np.array([progress.iteration], np.int32)
        file["current_step"] = np.array([progress.current_step], np.int32)
        if progress.plateau is not None:  # for the forks that know the policy
            file["iter_last_event"] = np.array([progress.plateau.last_event], np.int32)
            file["minimum_loss"] = np.array([progress.plateau.lowest_loss], np.float32)
        _write_string(file, "learned_net", learned_net)
        file.create_group("history")
        for index, values in enumerate(history):
            if isinstance(values, torch.Tensor):
                file[f"history/{index}"] = values.cpu().numpy()
            else:
                write_reference(file["history"], str(index), values)
        file["engine_state"] = np.frombuffer(engine_state(progress).SerializeToString(), np.uint8)

    return make_image(fill)


def read_state_hdf5(path: Path) -> SavedState:
    """Read the file, ours or Caffe's.

    Raises:
        SnapshotError: (exit code 65) it is cut short, a caffemodel or something else.
        NetError: (exit code 65) a shard with the histories of tables cannot be used.
    """

    def fail(reason: str) -> SnapshotError:
        return unreadable(f"{path} is {reason}", "give the .solverstate.h5 file of another snapshot")

    with open_image(path, fail) as file, reading(fail):
        if "iter" not in file:
            raise only_weights(path) if "data" in file else unreadable(f"{path} is HDF5 and no solverstate", None)
        progress = checked_progress(_number(file["iter"]), _number(file["current_step"]))
        stored = [file["history"][str(index)] for index in range(len(file["history"]))]
        references = [read_reference(each) for each in stored]
        history = [
            _values(each) if blob is None else find_rows(blob, path)
            for each, blob in zip(stored, references, strict=True)
        ]
        if "minimum_loss" in file and "iter_last_event" in file:
            last_event = _number(file["iter_last_event"])
            lowest_loss = float(_values(file["minimum_loss"]).reshape(()))
            progress.plateau = PlateauState.of_fork(progress.current_step, lowest_loss, last_event)
        if "engine_state" in file:
            try:
                add_engine_state(progress, EngineState.FromString(_read(file["engine_state"]).tobytes()))
            except (DecodeError, PrototxtError, ValueError, AttributeError) as error:
                raise fail(f"damaged in 'engine_state' ({error})") from None
        return SavedState(path, progress, learned_net_of(file), history)


def _write_string(file: Any, name: str, text: str) -> None:
    """Write a string as C's HDF5 functions do, since Caffe cannot read h5py's own strings."""
    import h5py

    content = os.fsencode(text)
    kind = h5py.h5t.C_S1.copy()
    kind.set_size(len(content) + 1)
    kind.set_strpad(h5py.h5t.STR_NULLTERM)
    space = h5py.h5s.create(h5py.h5s.SCALAR)
    without_times = h5py.h5p.create(h5py.h5p.DATASET_CREATE)  # as h5py's own: the same content is the same bytes
    without_times.set_obj_track_times(False)
    dataset = h5py.h5d.create(file.id, name.encode(), kind, space, dcpl=without_times)
    dataset.write(space, space, np.array(content, dtype=f"S{len(content) + 1}"), mtype=kind)


def learned_net_of(file: Any) -> str:
    """Return the path of the weights that an open file names, or nothing; bytes that are not UTF-8 are surrogates.

    Raises:
        ValueError: it is longer than any path.
    """
    if "learned_net" not in file:
        return ""
    dataset = file["learned_net"]
    if dataset.nbytes > _MAX_PATH_BYTES:
        raise ValueError(f"learned_net has {dataset.nbytes} bytes")
    value = dataset[()]
    return os.fsdecode((value if isinstance(value, bytes) else bytes(value)).split(b"\0")[0])


def _number(dataset: Any) -> int:
    if dataset.size != 1 or dataset.dtype.kind not in "iu":
        raise ValueError(f"'{dataset.name}' is no whole number")
    return int(np.asarray(dataset[()]).reshape(()))


def _values(dataset: Any) -> NDArray[Any]:
    if dataset.dtype.kind not in "fiu":
        raise ValueError(f"'{dataset.name}' holds no numbers")
    array = _read(dataset)
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def _read(dataset: Any) -> NDArray[Any]:
    """Read the values, if they are really in the file: HDF5 makes up what it has not stored, of any size."""
    stored = dataset.id.get_storage_size()
    if dataset.nbytes > stored:
        raise ValueError(f"'{dataset.name}' has {dataset.nbytes} bytes by its shape, and {stored} are stored")
    return np.asarray(dataset[()])
