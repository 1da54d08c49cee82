"""From which snapshot a run goes on that the launcher has started again."""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.prototxt import SolverSource
from mgcaffe.solvers.events import Event, SolverListener
from mgcaffe.solvers.snapshots.manifest import manifest_path
from mgcaffe.solvers.snapshots.reading import newest_snapshot
from mgcaffe.tools.flags.parsing import Flags
from mgcaffe.tools.flags.snapshot_flags import chosen_snapshot


def snapshot_after_restart(
    flags: Flags, source: SolverSource, communicator: Communicator, listeners: Sequence[SolverListener]
) -> str | None:
    """Return the solverstate to go on from, the same on every rank; None to start anew. Collective.

    After a restart it is the newest valid one that this run has written. Until there is one, the run begins as its
    flags say: an older snapshot under the same prefix may be another run's, and so may one without a manifest.
    """
    if flags.restarted is None:
        return chosen_snapshot(flags, source, communicator, listeners)

    def emit(event: Event) -> None:
        for listener in listeners:
            listener.on_event(event)

    found = newest_snapshot(source.param, source, communicator, emit)
    is_ours = False
    if found is not None and communicator.rank == 0:
        # Where files with the same bytes are there already, only the manifest is written anew (`SnapshotCopy.write`).
        manifest = manifest_path(found)
        is_ours = manifest.exists() and manifest.stat().st_mtime >= flags.restarted
    return found if communicator.broadcast_object(is_ours) else chosen_snapshot(flags, source, communicator, listeners)
