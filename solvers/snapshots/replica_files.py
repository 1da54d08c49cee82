"""Snapshots of all replicas (`comm_param.snapshot_replicas`): each trainer writes its own, under its own prefix.

Trainer 0 writes `<prefix>_iter_<N>` as ever, trainer k `<prefix>.trainer_<k>_iter_<N>`, each when it has come to
iteration N itself. Tables whose rows lie in several processes are trainer 0's alone: it has them written and put back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from mgcaffe.comm import Communicator
from mgcaffe.engine import Net
from mgcaffe.errors import EngineError
from mgcaffe.solvers.events import Emit, Warned
from mgcaffe.solvers.snapshots.progress import Progress
from mgcaffe.solvers.snapshots.reading import load_snapshot, read_snapshot
from mgcaffe.solvers.update.updater import Updater

_ITERATION = "_iter_"


def replica_prefix(prefix: Path, trainer: int) -> Path:
    """Return what the names of a trainer's snapshots begin with."""
    return prefix.with_name(f"{prefix.name}.trainer_{trainer}") if trainer else prefix


def restore_replica(
    path: str, progress: Progress, net: Net, updater: Updater, world: Communicator, emit: Emit
) -> Progress | None:
    """Put this trainer's own replica and histories back, if those of all trainers are there; collective.

    Args:
        path: trainer 0's solverstate.
        progress: what it says.
        net, updater: they hold trainer 0's replica and histories, and keep them where anyone's are missing.
        world: the trainers.
        emit: takes the events.

    Returns:
        Where this trainer stood; None: not all replicas can be used, or the snapshot is of another number of trainers.
    """
    if len(progress.trainers) != world.size:
        return None
    own, missing = _find(Path(path), progress, world.rank)
    missing_ones = [text for text in world.allgather(missing) if text]
    if missing_ones:
        emit(Warned(f"the replicas of all trainers cannot be put back: {'; '.join(missing_ones)}"))
        return None
    if world.rank == 0:
        return progress
    assert own is not None
    return load_snapshot(str(own), net, updater, emit, tables_too=False)


def _find(state: Path, progress: Progress, trainer: int) -> tuple[Path | None, str]:
    """Return a trainer's solverstate, or why there is none that can be used."""
    if trainer == 0:
        return state, ""
    for candidate in _candidates(state, progress, trainer):
        if not candidate.is_file():
            continue
        try:
            found, _ = read_snapshot(candidate)
        except EngineError as error:
            return None, error.message
        if found.progress.seed == progress.seed:
            return candidate, ""
        return None, f"{candidate} is of another run"
    names = " nor ".join(str(each) for each in dict.fromkeys(_candidates(state, progress, trainer)))
    return None, f"there is no {names}"


def _candidates(state: Path, progress: Progress, trainer: int) -> Iterator[Path]:
    """Yield the files that may hold a trainer's replica: of where it stood then, and of trainer 0's iteration.

    A trainer that had gone on further has written the latter before: with it replicas have met in as many rounds.
    """
    name, _, rest = state.name.rpartition(_ITERATION)
    suffix = rest.removeprefix(str(progress.iteration))
    prefix = replica_prefix(state.with_name(name), trainer)
    for iteration in sorted((progress.trainers[trainer], progress.iteration)):
        yield prefix.with_name(f"{prefix.name}{_ITERATION}{iteration}{suffix}")
