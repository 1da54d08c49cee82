"""Events about snapshots and weights in files, on rank 0 alone, which reads and writes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mgcaffe.solvers.events import Event

if TYPE_CHECKING:
    from mgcaffe.engine.weights.by_name import CopyReport


@dataclass(frozen=True)
class SnapshotWriting(Event):
    """A file of a snapshot is about to be written.

    Attributes:
        iteration: updates done so far.
        path: the file.
        kind: `weights` (caffemodel) or `state` (solverstate).
    """

    iteration: int
    path: str
    kind: str


@dataclass(frozen=True)
class SnapshotWritten(Event):
    """A snapshot is complete and on disk.

    Attributes:
        iteration: updates done so far.
        weights: the caffemodel.
        state: the solverstate.
    """

    iteration: int
    weights: str
    state: str


@dataclass(frozen=True)
class BestFound(Event):
    """A test's score is the best so far, and the snapshot of these weights is on disk (`snapshot_best`).

    Attributes:
        iteration: updates done so far.
        output: the test output's name.
        value: its score.
        state: the solverstate.
    """

    iteration: int
    output: str
    value: float
    state: str


@dataclass(frozen=True)
class NothingToRestore(Event):
    """`--snapshot=auto` found no snapshot that can be used, so training starts anew.

    Attributes:
        prefix: what the names of snapshots begin with.
    """

    prefix: str


@dataclass(frozen=True)
class Restored(Event):
    """Training goes on from a snapshot.

    Attributes:
        iteration: updates done when it was taken.
        state: the solverstate.
        weights: the caffemodel that it names, where it was found; None: it names none, and the weights stayed.
    """

    iteration: int
    state: str
    weights: str | None


@dataclass(frozen=True)
class WeightsCopied(Event):
    """Weights were copied into a net by layer name.

    Attributes:
        path: the caffemodel.
        net: `train`, or `test #0` and so on.
        report: the table of what was copied and what was skipped (engine.weights.by_name.CopyReport).
    """

    path: str
    net: str
    report: CopyReport
