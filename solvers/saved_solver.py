"""Tests a solver's weights, saves them, and goes on from a snapshot (Caffe: Solver::TestAll, Snapshot, Restore)."""

from __future__ import annotations

from functools import partial

from mgcaffe.comm.supervision import status
from mgcaffe.errors import SnapshotError
from mgcaffe.solvers import events
from mgcaffe.solvers.built_solver import BuiltSolver
from mgcaffe.solvers.snapshots.progress import Progress
from mgcaffe.solvers.snapshots.reading import restore_snapshot
from mgcaffe.solvers.snapshots.replica_files import restore_replica


class SavedSolver(BuiltSolver):
    """A solver whose weights can be tested, saved and restored between two iterations."""

    def complete_update(self) -> None:
        """Complete an update that was left to the next forward pass, before weights are read between iterations.

        Where the plan overlaps the forward pass, the weights of the layers whose groups have not come are those before
        the update. `step`, tests and snapshots do this by themselves; listeners who read weights call it. Collective.
        """
        report = self._trainer.complete_update()
        if report is not None:
            self._meter.communicated(report)

    # -- tests -------------------------------------------------------------------------------------------

    def test_all(self) -> None:
        """Test every test net on all ranks; `snapshot_best` then keeps the best weights."""
        self.complete_update()
        if self._snapshots.keeps_best:
            self._workers.meet(self.iteration)
        self._workers.average_statistics(self.ranks)
        before = self._state.progress(self.iteration, self.seed) if self._snapshots.keeps_best else None
        if not self._tests.run(self.seed, self.iteration, self._wants_stop):
            self._stop()
        elif before is not None:
            self._on_rank0(partial(self._take_if_best, before))

    @property
    def scores(self) -> tuple[tuple[events.OutputValue, ...], ...]:
        """The mean outputs of the last complete test, for each test net; empty before the first."""
        return self._tests.scores

    def _take_if_best(self, before: Progress) -> None:
        with self._replicas.lock:
            self._snapshots.take_if_best(self._tests.scores, before)

    def _wants_stop(self) -> bool:
        """Return whether this rank wants to leave a test; raise what has ended one of its workers meanwhile."""
        self._workers.check()
        return self._stop_requested or self._replicas.stop_requested

    def _stop(self) -> None:
        """End training as soon as all workers have made as many iterations."""
        self._stop_requested, self._stopped = False, True
        self._workers.stop()

    # -- snapshots ---------------------------------------------------------------------------------------

    def snapshot(self) -> None:
        """Write `<prefix>_iter_<N>.caffemodel` and `.solverstate`; rank 0 writes, all ranks in step take part.

        Raises:
            SnapshotError: on every rank in step: a file cannot be written.
        """
        self._take_snapshot()
        failure, _ = self._snapshots.end(self.ranks.communicator)
        if failure is not None:
            raise failure

    def _rewind_test(self) -> None:
        """Have the test of the iteration that is cut short read the same again: it runs before that one's update."""
        if self._tests.tested_at == self.iteration:
            self._tests.rewind()

    def _take_snapshot(self) -> None:
        """Have the weights written as they are now; a failure is warned about (collective)."""
        status.doing("snapshot")
        self.complete_update()
        _ = self._snapshots.prefix  # a missing one is an error on every rank
        self._workers.meet(self.iteration)
        self._workers.average_statistics(self.ranks)
        progress = self._state.progress(self.iteration, self.seed)

        def take() -> None:
            with self._replicas.lock:
                self._snapshots.take(progress)

        if self._replicas.are_all_saved:
            take()
        else:
            self._on_rank0(take)

    def restore(self, path: str) -> None:
        """Go on from a solverstate as if training had never stopped; from Caffe's as far as it says.

        Raises:
            SnapshotError: (exit code 65) on rank 0, which alone reads it: no solverstate, or not of this solver.
        """
        net, tests = self.net, self.test_nets
        progress = restore_snapshot(path, net, tests, self._updater, self.world, self._emit, self._on_rank0)
        own = None
        if self._replicas.can_resume_all(progress.synchronization):
            own = restore_replica(path, progress, self.net, self._updater, self.world.communicator, self._emit)
        self.seed = progress.seed if progress.seed is not None else self.seed
        self.iteration = self._state.resume(progress, own)
        self._workers.take_statistics()
        self._snapshots.resume(path, progress)

    def rescue(self) -> str | None:
        """Write a snapshot of this rank's weights, which are all ranks', once others are gone; not collective.

        What the iteration that was cut short had changed is put back first.

        Returns:
            The solverstate's path, or None where it could not be written.

        Raises:
            SnapshotError: rows of tables lie in other ranks.
        """
        if self._tables is not None:
            raise SnapshotError("rows of tables lie in other ranks, which are gone, or not reached any more")
        self._finite.rewind()
        self._rewind_test()
        self._snapshots.take(self._state.progress(self.iteration, self.seed, alone=True))
        self._snapshots.wait()
        return self._snapshots.last_state if self._snapshots.failure is None else None
