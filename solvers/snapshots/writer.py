"""The snapshots of one run: taken between two iterations, written in the background, pruned, the best one kept.

Training waits only for a copy of weights and histories. One snapshot is written at a time, so there is one copy
in memory at most: the next one waits until the thread has ended (`background`).
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from mgcaffe.comm import Communicator
from mgcaffe.engine import Net
from mgcaffe.errors import SnapshotError, SolverError
from mgcaffe.prototxt import SolverParameter, SolverSource
from mgcaffe.solvers.events import Emit, Noted, OutputValue, Warned
from mgcaffe.solvers.events.snapshots import BestFound, SnapshotWriting, SnapshotWritten
from mgcaffe.solvers.snapshots.background import BackgroundWriter
from mgcaffe.solvers.snapshots.best import BestRule, BestScore
from mgcaffe.solvers.snapshots.copying import SnapshotCopy
from mgcaffe.solvers.snapshots.files import probe_writable, remove_leftovers, write_atomically
from mgcaffe.solvers.snapshots.manifest import manifest_path
from mgcaffe.solvers.snapshots.names import is_hdf5, snapshot_prefix, state_path, weights_path
from mgcaffe.solvers.snapshots.progress import Progress
from mgcaffe.solvers.snapshots.replica_files import replica_prefix
from mgcaffe.solvers.snapshots.store import Retention, stored_snapshots
from mgcaffe.solvers.snapshots.table_shards import TableShards, TablesOfTrainer0, writes_shards
from mgcaffe.solvers.source import locate
from mgcaffe.solvers.tables.shard_holder import TableHolders
from mgcaffe.solvers.update.updater import Updater


class Snapshots:
    """Takes the snapshots of a run, on rank 0; the other ranks make none, unless all replicas are wanted.

    Args:
        param: the SolverParameter message.
        source: where its fields stand, for errors and the default prefix.
        net, test_nets: the training net, and the test nets, one of which `snapshot_best` may name.
        updater: whose histories are saved.
        emit: takes the events, on the thread that calls.
        trainer: whose replica is written.
        tables: those that hold rows of the net's tables, where these lie in several processes; else None.

    Attributes:
        last_state: the solverstate written last in this run, if any.

    Raises:
        SolverError: `snapshot_best` names no output of a test net.
    """

    def __init__(
        self,
        param: SolverParameter,
        source: SolverSource | None,
        net: Net,
        test_nets: Sequence[Net],
        updater: Updater,
        emit: Emit,
        trainer: int = 0,
        tables: TableHolders | None = None,
    ) -> None:
        self.last_state: str | None = None
        self._param = param
        self._source = source
        self._net = net
        self._updater = updater
        self._emit = emit
        self._trainer = trainer
        self._tables = tables if writes_shards(param) and not trainer else None
        self._lacks_tables = tables is not None and trainer > 0
        self._stops: bool = param.snapshot_errors == type(param).STOP
        self._best_rule = BestRule(param.snapshot_best, test_nets, source) if param.snapshot_best else None
        self._background = BackgroundWriter(emit, stops=self._stops)
        self._named: BestScore | None = None
        self._written: int | None = None
        self._written_at = 0.0

    @functools.cached_property
    def prefix(self) -> Path:
        """What the names of the files begin with.

        Raises:
            SolverError: the solver gives no snapshot_prefix, and was read from no file.
        """
        return replica_prefix(snapshot_prefix(self._param, self._source), self._trainer)

    @property
    def failure(self) -> SnapshotError | None:
        """Why the latest snapshot is not on disk; None if it is."""
        return self._background.failure

    @property
    def keeps_best(self) -> bool:
        """Whether `snapshot_best` is set, so that tests are to be followed by `take_if_best`."""
        return self._best_rule is not None

    @property
    def wants_stop(self) -> bool:
        """Whether a snapshot failed, and `snapshot_errors` says that this ends the run."""
        return self._stops and self.failure is not None

    def resume(self, state: str, progress: Progress) -> None:
        """Go on from an earlier run.

        Args:
            state: the solverstate; it need not be written again if these weights are the best.
            progress: what it says.
        """
        self._written = None
        if self._removes and self._is_under_prefix(Path(state)):
            self._retention.adopt()
        if self._best_rule is not None:
            self._best_rule.resume(progress.best)
            same = Path(state).absolute() == self._state(progress.iteration).absolute()
            if same and manifest_path(state).exists():
                self._written = progress.iteration

    def take(self, progress: Progress) -> None:
        """Copy weights and histories as they are now, and have them written."""
        self.wait()  # only then is the best one so far known
        self._start(replace(progress, best=self._best), None)

    def take_if_best(self, scores: Sequence[Sequence[OutputValue]], progress: Progress) -> None:
        """Keep a snapshot of these weights if the test's scores are the best so far.

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
            self._write_with(lambda: self._mark_best(self._state(progress.iteration), best))
        else:
            self._start(replace(progress, best=best), best)

    def poll(self) -> None:
        """Emit the events of what has been written by now, without waiting."""
        self._background.poll()

    def wait(self) -> None:
        """Return once nothing is being written any more."""
        self._background.wait()

    def end(self, communicator: Communicator) -> tuple[SnapshotError | None, str | None]:
        """Wait, and return the same on every rank: why a rank's last snapshot failed, and rank 0's last state."""
        self.wait()
        facts = (self.failure.message, self.failure.hint) if self.failure is not None else None
        everyones = communicator.allgather((facts, self.last_state))
        failed = next((each for each, _ in everyones if each is not None), None)
        return (SnapshotError(failed[0], hint=failed[1]) if failed is not None else None), everyones[0][1]

    def close(self) -> None:
        """Wait for the last snapshot; harmless when repeated."""
        self.wait()

    # -- beginning ---------------------------------------------------------------------------------------

    def _start(self, progress: Progress, best: BestScore | None) -> None:
        """Copy and begin to write; nothing else is being written."""
        iteration, hdf5 = progress.iteration, is_hdf5(self._param)
        weights = weights_path(self.prefix, iteration, hdf5=hdf5)
        self._emit(SnapshotWriting(iteration, str(weights), "weights"))
        self._emit(SnapshotWriting(iteration, str(self._state(iteration)), "state"))
        shards: TableShards | TablesOfTrainer0 | None = TablesOfTrainer0() if self._lacks_tables else None
        if self._tables is not None:
            shards = TableShards(self._tables, weights, iteration, background=self._param.snapshot_background)
            self._emit(Noted(f"Snapshotting tables to {shards.describe()}"))
        copied = SnapshotCopy(
            self._net, self._updater, progress, hdf5=hdf5, with_diffs=self._param.snapshot_diff, shards=shards
        )
        self._write_with(lambda: self._write(copied, str(weights), best))

    def _write_with(self, work: Callable[[], None]) -> None:
        self._background.start(work)
        if not self._param.snapshot_background:
            self.wait()

    def _state(self, iteration: int) -> Path:
        return state_path(self.prefix, iteration, hdf5=is_hdf5(self._param))

    @property
    def _best(self) -> BestScore | None:
        """The best score whose snapshot is on disk."""
        return self._best_rule.best if self._best_rule is not None else None

    # -- on the background thread ------------------------------------------------------------------------

    def _write(self, copied: SnapshotCopy, weights: str, best: BestScore | None) -> None:
        iteration = copied.progress.iteration
        remove_leftovers(self.prefix, iteration if self._tables is not None else None)
        written_at = self._next_time()
        state = copied.write(self.prefix, only_best=best is not None, written_at=written_at)
        self._retention.add(state, written_at)
        for text in copied.warnings:
            self._background.report(Warned(text))
        self._written, self.last_state = iteration, str(state)
        self._background.report(SnapshotWritten(iteration, weights, str(state)))
        if best is not None:
            self._mark_best(state, best)
        else:
            self._prune(state)

    def _next_time(self) -> float:
        """Return the time now, or just after the newest snapshot there is: a clock set back must not reorder them."""
        if not self._written_at:
            self._written_at = max((each.written_at for each in stored_snapshots(self.prefix)), default=0.0)
        self._written_at = max(time.time(), self._written_at + 1e-3)
        return self._written_at

    def _mark_best(self, state: Path, best: BestScore) -> None:
        """Take a snapshot that was written as the best one."""
        assert self._best_rule is not None
        self._name_best(best)
        self._best_rule.best = best
        self._background.report(BestFound(best.iteration, best.output, best.value, str(state)))
        self._prune(state)

    def _name_best(self, best: BestScore) -> None:
        """Write into `<prefix>_best.json` which snapshot is the best one."""
        weights = weights_path(self.prefix, best.iteration, hdf5=is_hdf5(self._param))
        names = {"weights": weights.name, "state": self._state(best.iteration).name}
        text = json.dumps({**asdict(best), **names}, indent=1)
        write_atomically(self.prefix.with_name(f"{self.prefix.name}_best.json"), f"{text}\n".encode())
        self._named = best

    def _prune(self, newest: Path) -> None:
        if not self._removes:
            return
        best = self._best
        if best is not None and best != self._named and self._retention.owns(self._state(best.iteration)):
            self._name_best(best)  # the run before may have been killed just before it did
        self._retention.prune(
            newest, None if best is None else best.iteration, lambda text: self._background.report(Warned(text))
        )

    @property
    def _removes(self) -> bool:
        """Whether superseded snapshots are removed."""
        return bool(self._param.snapshot_keep) or self._best_rule is not None

    def _is_under_prefix(self, state: Path) -> bool:
        """Return whether a solverstate, of trainer 0 where there are several, is one of this run's prefix, if any."""
        try:
            prefix = snapshot_prefix(self._param, self._source)
        except SolverError:
            return False
        folder = state.absolute().parent.resolve()
        return folder == prefix.absolute().parent.resolve() and state.name.startswith(f"{prefix.name}_iter_")

    @functools.cached_property
    def _retention(self) -> Retention:
        return Retention(self.prefix, self._param.snapshot_keep)


def check_prefix(param: SolverParameter, source: SolverSource | None, rank: int) -> None:
    """Find out before hours of training that the snapshots a solver asks for cannot be written, where rank 0 writes.

    Raises:
        SolverError: on every rank: there is no prefix.
        SnapshotError: (exit code 73) on rank 0: no file can be written there.
    """
    if not (param.snapshot or param.snapshot_after_train or param.snapshot_best):
        return
    prefix = snapshot_prefix(param, source)
    if rank == 0:
        given = param.HasField("snapshot_prefix")
        probe_writable(prefix, locate(source, "snapshot_prefix") if given else None)
