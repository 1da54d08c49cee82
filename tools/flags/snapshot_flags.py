"""The flags of `engine train` about snapshots: one for each of our own fields, and what `--snapshot=auto` finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.solvers.events import Event, SolverListener
from mgcaffe.tools.flags.parsing import FlagParser, Flags, number_from

if TYPE_CHECKING:
    from mgcaffe.prototxt import SolverParameter, SolverSource

_AUTO = "auto"
_ERRORS = ("warn", "stop")


def add_snapshot_flags(parser: FlagParser) -> None:
    """Add `--snapshot` and one flag for each field of ours about snapshots."""
    parser.flag(
        "snapshot",
        "go on from this solverstate; 'auto': from the newest whole one under the solver's snapshot_prefix, or, where"
        " there is none, anew",
        metavar="FILE",
    )
    parser.flag("snapshot_keep", "keep only the newest N whole snapshots (0: all)", type=number_from(0), metavar="N")
    parser.flag(
        "snapshot_best", "keep one more snapshot, the best by a test output, as accuracy, loss:lower or 1:top5:higher",
        metavar="OUTPUT",
    )  # fmt: skip
    parser.flag("best", "the same as --snapshot_best", dest="snapshot_best", metavar="OUTPUT")
    parser.flag(
        "snapshot_errors", "whether a snapshot that cannot be written warns or stops the run (default: warn)",
        choices=_ERRORS,
    )  # fmt: skip
    parser.switch(
        "snapshot_background", "write snapshots while training goes on (this is the default)", default=None
    )  # fmt: skip
    parser.switch(
        "no_snapshot_background", "let training wait for snapshots", action="store_false", dest="snapshot_background"
    )


def apply_snapshot_flags(solver: SolverParameter, flags: Flags) -> None:
    """Put the flags' values into the solver's fields (the SolverParameter message is changed in place)."""
    if flags.snapshot_errors is not None:
        solver.snapshot_errors = type(solver).SnapshotErrors.Value(flags.snapshot_errors.upper())
    for name in ("snapshot_keep", "snapshot_best", "snapshot_background"):
        if getattr(flags, name) is not None:
            setattr(solver, name, getattr(flags, name))


def is_auto(flags: Flags) -> bool:
    """Return whether the snapshot to go on from has to be looked for."""
    return bool(flags.snapshot == _AUTO)


def chosen_snapshot(
    flags: Flags, source: SolverSource, communicator: Communicator, listeners: Sequence[SolverListener]
) -> str | None:
    """Return the solverstate to go on from, the same on every rank; None to start anew. Collective.

    Args:
        flags: those of `add_snapshot_flags`.
        source: the solver and where its fields stand.
        communicator: the ranks.
        listeners: are informed of what was passed over.
    """
    if not is_auto(flags):
        return flags.snapshot or None
    from mgcaffe.solvers.snapshots.reading import newest_snapshot

    def emit(event: Event) -> None:
        for listener in listeners:
            listener.on_event(event)

    return newest_snapshot(source.param, source, communicator, emit)
