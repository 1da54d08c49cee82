"""A snapshot: the weights and the solver's state, each written whole, the state last.

`<prefix>_iter_<N>.caffemodel` is a NetParameter with every layer and its blobs,
`<prefix>_iter_<N>.solverstate` a SolverState that names it. With `snapshot_format: HDF5` both are HDF5, and their
names end in `.h5`, by which Caffe tells. A snapshot counts once its solverstate is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mgcaffe.engine import Net
from mgcaffe.engine.weights_hdf5 import encode_hdf5
from mgcaffe.errors import SolverError
from mgcaffe.solvers.events import Emit, SnapshotWriting, SnapshotWritten
from mgcaffe.solvers.files import write_atomically
from mgcaffe.solvers.state import Progress, encode_state
from mgcaffe.solvers.state_hdf5 import encode_state_hdf5
from mgcaffe.solvers.updates import Updater


def snapshot_prefix(param: Any, source: Any = None) -> Path:
    """What the names of a solver's snapshots begin with.

    A missing snapshot_prefix means the solver's own path without its suffix; a folder means the solver's name
    in that folder.

    Raises:
        SolverError: there is no prefix, and the solver was read from no file.
    """
    solver = Path(source.path) if source is not None else None
    given = param.snapshot_prefix
    if not given:
        if solver is None:
            raise SolverError(
                "the solver takes snapshots and gives no snapshot_prefix",
                hint="set snapshot_prefix, or snapshot_after_train: false",
            )
        return solver.with_suffix("")
    if Path(given).is_dir() or given.endswith("/"):
        return Path(given) / (solver.stem if solver is not None else "snapshot")
    return Path(given)


def weights_path(prefix: Path, iteration: int, *, hdf5: bool = False) -> Path:
    """The caffemodel of an iteration."""
    return prefix.with_name(f"{prefix.name}_iter_{iteration}.caffemodel{'.h5' if hdf5 else ''}")


def state_path(prefix: Path, iteration: int, *, hdf5: bool = False) -> Path:
    """The solverstate of an iteration."""
    return prefix.with_name(f"{prefix.name}_iter_{iteration}.solverstate{'.h5' if hdf5 else ''}")


def is_hdf5(param: Any) -> bool:
    """Whether a solver's snapshots are HDF5."""
    return bool(param.snapshot_format == type(param).HDF5)


def write_snapshot(
    prefix: Path, net: Net, updater: Updater, progress: Progress, *, hdf5: bool, with_diffs: bool, emit: Emit
) -> Path:
    """Writes both files and returns the solverstate's path.

    Args:
        prefix: what the files' names begin with.
        net: the training net.
        updater: whose histories are saved.
        progress: where the solver stands.
        hdf5: whether they are HDF5.
        with_diffs: whether the caffemodel also holds what the last update took off each weight.
        emit: takes the events.

    Raises:
        SnapshotError: a file cannot be written; what was there before is untouched.
    """
    iteration = progress.iteration
    weights, state = weights_path(prefix, iteration, hdf5=hdf5), state_path(prefix, iteration, hdf5=hdf5)
    emit(SnapshotWriting(iteration, str(weights), "weights"))
    write_atomically(weights, _encode_weights(net, hdf5, with_diffs))
    emit(SnapshotWriting(iteration, str(state), "state"))
    encode = encode_state_hdf5 if hdf5 else encode_state
    write_atomically(state, encode(progress, str(weights), net.arena, net.parameters, updater.histories))
    emit(SnapshotWritten(iteration, str(weights), str(state)))
    return state


def _encode_weights(net: Net, hdf5: bool, with_diffs: bool) -> bytes:
    if hdf5:
        return encode_hdf5(net.layers, with_diffs)
    content: bytes = net.to_proto(with_diffs).SerializeToString()
    return content
