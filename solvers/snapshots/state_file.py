"""The binary form of a solverstate (Caffe: SolverState in caffe.proto), and reading a file of either form."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import torch
from google.protobuf.message import DecodeError

from mgcaffe.engine.weights.hdf5_image import is_hdf5
from mgcaffe.engine.weights.shards import find_rows, has_shards
from mgcaffe.errors import PrototxtError, SnapshotError
from mgcaffe.prototxt import BlobProto, NetParameter, SolverState, blob_array, fill_blob
from mgcaffe.prototxt.messages import message_facts
from mgcaffe.prototxt.wire_format import field_head
from mgcaffe.solvers.rates.plateau import PlateauState
from mgcaffe.solvers.snapshots.progress import Progress, add_engine_state, checked_progress, engine_state
from mgcaffe.solvers.snapshots.state import SavedState, only_weights, unreadable
from mgcaffe.solvers.snapshots.state_hdf5 import read_state_hdf5

_MAX_BYTES = 2**31 - 1


def encode_state(progress: Progress, learned_net: str, history: Sequence[torch.Tensor | BlobProto]) -> bytes:
    """Encode a solverstate file.

    Args:
        progress: where the solver stands.
        learned_net: the caffemodel's path.
        history: the history blobs, as `Updater.history_blobs` returns them; what stands for those in shards.
    """
    message = SolverState(iter=progress.iteration, current_step=progress.current_step)
    name = os.fsencode(learned_net)  # protobuf takes a text that is UTF-8 alone, and these bytes as they are
    message.MergeFromString(field_head(message_facts(message).fields["learned_net"].number, len(name)) + name)
    for values in history:
        if isinstance(values, torch.Tensor):
            fill_blob(message.history.add(), values.cpu().numpy())
        else:
            message.history.add().CopyFrom(values)
    if progress.plateau is not None:  # for the forks that know the policy
        message.minimum_loss, message.iter_last_event = progress.plateau.lowest_loss, progress.plateau.last_event
    message.engine_state.CopyFrom(engine_state(progress))
    return message.SerializeToString()


def read_state(path: str | os.PathLike[str]) -> SavedState:
    """Read a solverstate, ours or Caffe's, binary or HDF5 by its content.

    Raises:
        SnapshotError: (exit code 65) the file is missing, cut short, a caffemodel or something else.
        NetError: (exit code 65) a shard with the histories of tables cannot be used.
    """
    path = Path(path)
    if is_hdf5(path):
        return read_state_hdf5(path)
    content = _read(path)
    message = SolverState()
    try:
        message.ParseFromString(content)
        if not message.HasField("iter"):
            raise _refuse_other_file(path, content)
        history = [find_rows(blob, path) if has_shards(blob) else blob_array(blob) for blob in message.history]
        progress = checked_progress(message.iter, message.current_step)
        if message.HasField("minimum_loss"):
            progress.plateau = PlateauState.of_fork(message.current_step, message.minimum_loss, message.iter_last_event)
        if message.HasField("engine_state"):
            add_engine_state(progress, message.engine_state)
        learned_net = os.fsdecode(message.learned_net)  # protobuf gives bytes that are not UTF-8 as they are
    except (DecodeError, PrototxtError, ValueError, AttributeError):
        raise unreadable(
            f"{path} is cut short, damaged, or no solverstate",
            "give the .solverstate file of another snapshot",
        ) from None
    return SavedState(path, progress, learned_net, history)


def _read(path: Path) -> bytes:
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):
            raise unreadable(f"cannot read the snapshot {path}: it is no file", None)
        if facts.st_size > _MAX_BYTES:
            raise unreadable(
                f"{path} is no solverstate: it has {facts.st_size} bytes, and a binary one at most 2 GiB", None
            )
        return path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise unreadable(f"cannot read the snapshot {path}: {reason}", None) from None


def _refuse_other_file(path: Path, content: bytes) -> SnapshotError:
    try:
        net = NetParameter.FromString(content)
        is_net = len(net.layer) > 0 or len(net.layers) > 0
    except DecodeError:
        is_net = False
    if is_net:
        return only_weights(path)
    return unreadable(f"{path} is no solverstate: it gives no iteration", None)
