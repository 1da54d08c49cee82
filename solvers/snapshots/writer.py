"""The snapshots of one run: taken between two iterations, written in the background, pruned, the best one kept.

Training waits only for a copy of weights and histories. One snapshot is written at a time, so there is one copy
in memory at most: the next one waits until the thread has ended. What happened there is told to the listeners
by the thread that trains, when it next calls.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from mgcaffe.comm import Communicator
from mgcaffe.engine import Net
from mgcaffe.errors import SnapshotError
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.events import BestFound, Emit, Event, OutputValue, SnapshotWriting, SnapshotWritten, Warned
from mgcaffe.solvers.snapshots.best import BestRule, BestScore
from mgcaffe.solvers.snapshots.copying import SnapshotCopy
from mgcaffe.solvers.snapshots.files import remove_leftovers, write_atomically
from mgcaffe.solvers.snapshots.manifest import manifest_path
from mgcaffe.solvers.snapshots.names import is_hdf5, state_path, weights_path
from mgcaffe.solvers.snapshots.state import Progress
from mgcaffe.solvers.snapshots.store import Retention, stored_snapshots
from mgcaffe.solvers.update.updater import Updater


class Snapshots:
    """Takes the snapshots of a run, on rank 0; the other ranks make none.

    Args:
        param: the SolverParameter message.
        prefix: gives what the files' names begin with; asked at the first snapshot.
        net: the training net.
        updater: whose histories are saved.
        best_rule: judges test scores; None: `snapshot_best` is not set.
        emit: takes the events, on the thread that calls.

    Attributes:
        failure: why the latest snapshot is not on disk; None if it is.
        last_state: the solverstate written last in this run, if any.
    """

    def __init__(
        self,
        param: SolverParameter,
        prefix: Callable[[], Path],
        net: Net,
        updater: Updater,
        best_rule: BestRule | None,
        emit: Emit,
    ) -> None:
        self.failure: SnapshotError | None = None
        self.last_state: str | None = None
        self._param = param
        self._prefix = prefix
        self._net = net
        self._updater = updater
        self._best_rule = best_rule
        self._emit = emit
        self._hdf5 = is_hdf5(param)
        self._stops: bool = param.snapshot_errors == type(param).STOP
        self._keeps_all = not param.snapshot_keep and best_rule is None
        self._retention: Retention | None = None
        self._written: int | None = None
        self._written_at = 0.0
        self._thread: threading.Thread | None = None
        self._happened: list[Event] = []

    @property
    def best(self) -> BestScore | None:
        """The best score whose snapshot is on disk."""
        return self._best_rule.best if self._best_rule is not None else None

    @property
    def wants_stop(self) -> bool:
        """Whether a snapshot failed, and `snapshot_errors` says that this ends the run."""
        return self._stops and self.failure is not None

    def resume(self, state: str, iteration: int, best: BestScore | None) -> None:
        """Goes on from an earlier run.

        Args:
            state: the solverstate; it need not be written again if these weights are the best.
            iteration: updates done.
            best: the best score so far.
        """
        self._written = None
        if self._best_rule is not None:
            self._best_rule.resume(best)
            if Path(state).absolute() == self._state(iteration).absolute() and manifest_path(state).exists():
                self._written = iteration

    def take(self, progress: Progress) -> None:
        """Copies weights and histories as they are now, and has them written."""
        self.wait()  # only then is the best one so far known
        self._start(replace(progress, best=self.best), None)
        if not self._param.snapshot_background:
            self.wait()

    def take_if_best(self, scores: Sequence[Sequence[OutputValue]], progress: Progress) -> None:
        """Keeps a snapshot of these weights if the test's scores are the best so far.

        Args:
            scores: the scores of each test net.
            progress: where the solver stood before the test, so that a resume begins with it.
        """
        if self._best_rule is None:
            return
        self.wait()
        best = self._best_rule.candidate(scores, progress.iteration)
        if best is None:
            return
        if self._written == progress.iteration:
            self._run(lambda: self._mark_best(self._state(progress.iteration), best))
        else:
            self._start(replace(progress, best=best), best)
        if not self._param.snapshot_background:
            self.wait()

    def poll(self) -> None:
        """Tells what the thread has done by now; never waits."""
        while self._happened:
            self._emit(self._happened.pop(0))

    def wait(self) -> None:
        """Returns once nothing is being written any more."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.poll()

    def end(self, communicator: Communicator) -> tuple[SnapshotError | None, str | None]:
        """Waits, and says the same on every rank: why the last snapshot failed, and the last state written."""
        self.wait()
        facts = (self.failure.message, self.failure.hint) if self.failure is not None else None
        facts, last_state = communicator.broadcast_object((facts, self.last_state))
        return (SnapshotError(facts[0], hint=facts[1]) if facts is not None else None), last_state

    def close(self) -> None:
        """Waits for the last snapshot; harmless when repeated."""
        self.wait()

    # -- beginning ---------------------------------------------------------------------------------------

    def _start(self, progress: Progress, best: BestScore | None) -> None:
        """Copies and begins to write; nothing else is being written."""
        iteration = progress.iteration
        prefix = self._prefix()
        weights = weights_path(prefix, iteration, hdf5=self._hdf5)
        self._emit(SnapshotWriting(iteration, str(weights), "weights"))
        self._emit(SnapshotWriting(iteration, str(self._state(iteration)), "state"))
        copied = SnapshotCopy(self._net, self._updater, progress, hdf5=self._hdf5, with_diffs=self._param.snapshot_diff)
        self._run(lambda: self._write(copied, prefix, str(weights), best))

    def _state(self, iteration: int) -> Path:
        return state_path(self._prefix(), iteration, hdf5=self._hdf5)

    def _run(self, work: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=lambda: self._guarded(work), name="snapshot")
        self._thread.start()

    # -- on the thread -----------------------------------------------------------------------------------

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except SnapshotError as error:
            self.failure = SnapshotError(error.message, hint=error.hint)  # the frames of `error` would keep the copy
        except Exception as error:
            # A thread that dies in silence would lose the snapshot without a word.
            self.failure = SnapshotError(f"cannot write a snapshot: {type(error).__name__}: {error}")
        else:
            self.failure = None
            return
        ending = "the run stops" if self._stops else "training goes on, and the next snapshot is tried"
        self._warn(f"no snapshot: {self.failure.message}; {ending}")

    def _warn(self, text: str) -> None:
        self._happened.append(Warned(text))

    def _write(self, copied: SnapshotCopy, prefix: Path, weights: str, best: BestScore | None) -> None:
        iteration = copied.progress.iteration
        remove_leftovers(prefix)
        state = copied.write(prefix, only_best=best is not None, written_at=self._next_time(prefix))
        self._written, self.last_state = iteration, str(state)
        self._happened.append(SnapshotWritten(iteration, weights, str(state)))
        if best is not None:
            self._mark_best(state, best)
        else:
            self._prune(state)

    def _next_time(self, prefix: Path) -> float:
        """Now, or after the newest snapshot there is: what the clock does must not reorder them."""
        if not self._written_at:
            self._written_at = max((each.written_at for each in stored_snapshots(prefix)), default=0.0)
        self._written_at = max(time.time(), self._written_at + 1e-3)
        return self._written_at

    def _mark_best(self, state: Path, best: BestScore) -> None:
        """Says in `<prefix>_best.json` which snapshot is the best one."""
        assert self._best_rule is not None
        prefix = self._prefix()
        weights = weights_path(prefix, best.iteration, hdf5=self._hdf5)
        text = json.dumps({**asdict(best), "weights": weights.name, "state": state.name}, indent=1)
        write_atomically(prefix.with_name(f"{prefix.name}_best.json"), f"{text}\n".encode())
        self._best_rule.best = best
        self._happened.append(BestFound(best.iteration, best.output, best.value, str(state)))
        self._prune(state)

    def _prune(self, newest: Path) -> None:
        if self._keeps_all:
            return
        if self._retention is None:
            self._retention = Retention(self._prefix(), self._param.snapshot_keep)
        self._retention.prune(newest, self.best.iteration if self.best else None, self._warn)
