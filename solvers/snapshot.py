"""A snapshot: the weights and the solver's state, each written whole, the state last.

`<prefix>_iter_<N>.caffemodel` is a NetParameter with every layer and its blobs,
`<prefix>_iter_<N>.solverstate` a SolverState that names it. A snapshot counts once its solverstate is there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mgcaffe.engine import Net
from mgcaffe.errors import SolverError
from mgcaffe.solvers.events import Emit, SnapshotWriting, SnapshotWritten
from mgcaffe.solvers.files import write_atomically
from mgcaffe.solvers.state import Progress, encode_state
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


def weights_path(prefix: Path, iteration: int) -> Path:
    """The caffemodel of an iteration."""
    return prefix.with_name(f"{prefix.name}_iter_{iteration}.caffemodel")


def state_path(prefix: Path, iteration: int) -> Path:
    """The solverstate of an iteration."""
    return prefix.with_name(f"{prefix.name}_iter_{iteration}.solverstate")


def write_snapshot(
    prefix: Path, net: Net, updater: Updater, progress: Progress, *, with_diffs: bool, emit: Emit
) -> Path:
    """Writes both files and returns the solverstate's path.

    Args:
        prefix: what the files' names begin with.
        net: the training net.
        updater: whose histories are saved.
        progress: where the solver stands.
        with_diffs: whether the caffemodel also holds what the last update took off each weight.
        emit: takes the events.

    Raises:
        SnapshotError: a file cannot be written; what was there before is untouched.
    """
    iteration = progress.iteration
    weights, state = weights_path(prefix, iteration), state_path(prefix, iteration)
    emit(SnapshotWriting(iteration, str(weights), "weights"))
    write_atomically(weights, net.to_proto(with_diffs).SerializeToString())
    emit(SnapshotWriting(iteration, str(state), "state"))
    content = encode_state(progress, str(weights), net.arena, net.parameters, updater.histories)
    write_atomically(state, content)
    emit(SnapshotWritten(iteration, str(weights), str(state)))
    return state
