"""Reads a snapshot: its state, and where its weights are, both compared with the manifest where there is one.

`newest_snapshot` is what `--snapshot=auto` means.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mgcaffe.comm import Communicator
from mgcaffe.engine import Net
from mgcaffe.engine.weights.by_name import CopyReport
from mgcaffe.engine.weights.hdf5_image import is_hdf5, open_image
from mgcaffe.errors import EngineError, PrototxtError
from mgcaffe.prototxt import SolverParameter, SolverSource, read_net
from mgcaffe.solvers.events import Emit, Warned
from mgcaffe.solvers.events.snapshots import NothingToRestore, Restored, WeightsCopied
from mgcaffe.solvers.exchange.ranks import Ranks
from mgcaffe.solvers.snapshots.manifest import Manifest, check_file, read_manifest
from mgcaffe.solvers.snapshots.names import snapshot_prefix
from mgcaffe.solvers.snapshots.progress import Progress
from mgcaffe.solvers.snapshots.state import SavedState, unreadable
from mgcaffe.solvers.snapshots.state_file import read_state
from mgcaffe.solvers.snapshots.store import stored_snapshots
from mgcaffe.solvers.update.updater import Updater

OnRank0 = Callable[[Callable[[], Progress]], Progress | None]

_OTHER = "resume from another snapshot; --snapshot=auto finds the newest whole one"


def read_snapshot(path: str | os.PathLike[str]) -> tuple[SavedState, Path | None]:
    """Read a solverstate and find its caffemodel, ours or Caffe's.

    Returns:
        The state, and the caffemodel's path; None where the state names none, as Caffe lets it.

    Raises:
        SnapshotError: (exit code 65) a file is missing, damaged or something else; with a manifest beside the
            state also where one byte differs from what was written.
        NetError: (exit code 65) a shard is missing or damaged, and there is no manifest.
    """
    manifest = read_manifest(path)
    if manifest is not None:
        check_file(Path(path), manifest.state)
        manifest.check_shards(Path(path).parent)
    state = read_state(path)
    weights = state.find_weights(beside_first=manifest is not None)
    if manifest is not None and weights is not None:
        check_file(weights, manifest.weights)
    return state, weights


def restore_snapshot(
    path: str,
    net: Net,
    test_nets: Sequence[Net],
    updater: Updater,
    ranks: Ranks,
    emit: Emit,
    on_rank0: OnRank0,
) -> Progress:
    """Put a snapshot's weights and histories back on all ranks; collective.

    Args:
        path: the solverstate.
        net, test_nets: the training net, and the test nets, which share its weights.
        updater: whose histories are filled.
        ranks: the ranks; rank 0 alone reads.
        emit: takes the events.
        on_rank0: runs a function on rank 0, where whole tables can be stored meanwhile.

    Returns:
        Where the solver stood.

    Raises:
        SnapshotError, NetError: (exit code 65) on rank 0: a file cannot be used, or is not of this net and solver type.
    """
    progress = on_rank0(lambda: load_snapshot(path, net, updater, emit))
    progress = ranks.communicator.broadcast_object(progress)
    assert progress is not None
    updater.separate_histories()
    ranks.broadcast_from_rank0(
        [*(tensor for each in (net, *test_nets) for tensor in each.arena.tensors()), *updater.histories]
    )
    return progress


def load_snapshot(path: str, net: Net, updater: Updater, emit: Emit, *, tables_too: bool = True) -> Progress:
    """Put a snapshot's weights and histories back.

    Args:
        path: the solverstate.
        net: the training net.
        updater: whose histories are filled.
        emit: takes the events of what was copied from where.
        tables_too: whether to put back tables whose rows lie in several processes.

    Returns:
        Where the solver stood.

    Raises:
        SnapshotError, NetError: (exit code 65) a file cannot be used, or is not of this net and solver type; or the
            snapshot was replaced while it was read, and the solver may hold a part of it.
    """
    manifest = read_manifest(path)
    state, weights = read_snapshot(path)
    state.check_solver_type(updater.name)
    state.check_history(updater.history_blobs(net.parameters))
    if weights is None:
        emit(
            Warned(
                f"{path} names no weights (learned_net): the iteration and the histories are restored, and training"
                " goes on with the weights that the net has now"
            )
        )
    else:
        with _reading_weights(weights):
            report = net.copy_trained_layers(weights, tables_too=tables_too)
        emit(WeightsCopied(str(weights), "train", report))
        _check_complete(report, net, weights)
    updater.separate_histories()
    state.copy_history(updater.history_blobs(net.parameters), tables_too=tables_too)
    _check_not_replaced(path, manifest)
    emit(Restored(state.progress.iteration, str(path), None if weights is None else str(weights)))
    return state.progress


def _check_not_replaced(path: str, before: Manifest | None) -> None:
    """Make sure that all that was read is of one snapshot; who replaces one removes its manifest first.

    Raises:
        SnapshotError: (exit code 65) another run has replaced it, or has begun to.
    """
    now = read_manifest(path)
    if before is None or (now is not None and now.has_files_of(before)):
        return
    raise unreadable(
        f"the snapshot {path} was replaced or removed while it was read",
        "let no other run write under this snapshot_prefix, and resume again",
    )


@contextmanager
def _reading_weights(path: Path) -> Iterator[None]:
    """Turn the error of a caffemodel that cannot be parsed into that of a snapshot that cannot be used."""
    try:
        yield
    except PrototxtError as error:
        reason = error.message.splitlines()[-1].strip()
        raise unreadable(f"{path} is cut short, damaged, or no caffemodel: {reason}", _OTHER) from None


def _check_complete(report: CopyReport, net: Net, weights: Path) -> None:
    """Make sure that a snapshot's caffemodel had the values of every layer of the net.

    Args:
        report: what became of the caffemodel's layers.
        net: the net.
        weights: the caffemodel.

    Raises:
        SnapshotError: (exit code 65) a layer is missing in it, so that training would not go on from there.
    """
    copied = Counter(row.layer for row in report.copied)
    wanted = Counter(layer.name for layer in net.layers if any(each.owner is None for each in layer.parameters))
    missing = list((wanted - copied).elements())
    if missing:
        raise unreadable(
            f"{weights} lacks the weights of layer(s) {', '.join(map(repr, missing))}",
            "resume with the net that the snapshot was taken with, or start from its weights with --weights",
        )


def newest_snapshot(
    param: SolverParameter, source: SolverSource | None, communicator: Communicator, emit: Emit
) -> str | None:
    """Find the newest snapshot under a solver's prefix that can be used; collective, and the same on every rank.

    Args:
        param: the SolverParameter message.
        source: where its fields stand.
        communicator: the ranks; rank 0 alone looks.
        emit: takes a warning for each damaged one that is skipped.

    Returns:
        The solverstate's path, or None: there is none.

    Raises:
        SolverError: the solver has no prefix.
    """
    prefix = snapshot_prefix(param, source)
    found = _newest(prefix, emit) if communicator.rank == 0 else None
    found = communicator.broadcast_object(found)
    if found is None and communicator.rank == 0:
        emit(NothingToRestore(str(prefix)))
    return found


def _newest(prefix: Path, emit: Emit) -> str | None:
    for stored in stored_snapshots(prefix):
        try:
            _, weights = read_snapshot(stored.state)
            if weights is None:
                raise unreadable("it names no weights (learned_net)", None)
            if stored.manifest is None:
                _check_weights(weights)
        except EngineError as error:
            emit(Warned(f"passing over snapshot {stored.state}: {error.message}"))
            continue
        return str(stored.state)
    return None


def _check_weights(path: Path) -> None:
    """Make sure that weights without a manifest can be read."""
    if not is_hdf5(path):
        with _reading_weights(path):
            read_net(path)
        return
    with open_image(path, lambda reason: unreadable(f"{path} is {reason}", None)) as file:
        if "data" not in file:
            raise unreadable(f"{path} is HDF5 and holds no weights of a net", None)
