"""The solver: reads a SolverParameter, builds its nets, and trains (Caffe: solver.cpp).

    with Solver(source.param, source=source, listeners=[log]) as solver:
        solver.restore("lenet_iter_5000.solverstate")      # optional
        solver.solve()

With several ranks every rank makes one and calls the same methods in the same order; rank 0 alone reads and
writes snapshots. The solver prints nothing: what happens goes to its listeners as events (`events`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from mgcaffe.comm.transport import ulfm
from mgcaffe.solvers import events
from mgcaffe.solvers.saved_solver import SavedSolver
from mgcaffe.solvers.testing import tester
from mgcaffe.solvers.testing.mean_of_all import score_mean_of_all
from mgcaffe.solvers.trainer import IterationObserver
from mgcaffe.solvers.training_iteration import TrainingIteration


class Solver(SavedSolver):
    """Trains a net as its SolverParameter says; `BuiltSolver` says what it is given, has and raises."""

    # -- training ----------------------------------------------------------------------------------------

    def solve(self) -> None:
        """Train up to max_iter, or until a stop is requested, with the tests and snapshots on the way."""
        self._meter.start_run()
        if self.iteration >= self.param.max_iter:
            self._warn([f"nothing to train: iteration {self.iteration}, max_iter {self.param.max_iter}"])
        self._emit(self._state.started(self.iteration, self._trainer.records_per_iteration))
        self.step(self.param.max_iter - self.iteration)
        self.finish_training()
        if self._tables is not None:
            self._tables.display(self.iteration, self._emit)
        # Rounds that were still served have changed this replica since a snapshot of the same iteration.
        is_taken = self.iteration and self._is_due(self.param.snapshot) and not self._replicas.is_one_of_several
        if self.param.snapshot_after_train and not is_taken:
            self._take_snapshot()
        if not self._stopped and self._is_due(self.param.display):
            self._display_last()
        due = not self._stopped and (self._is_test_due or (self._is_first and self._replicas.are_tested(self.param)))
        if due:
            self.test_all()
            if self._replicas.is_one_of_several:
                self._tests.rewind()  # the mean of all is tested on the same records
        mean_scores = score_mean_of_all(self.test_nets, self.world, self._replicas, self.seed, self.iteration, due)
        failure, last_state = self._snapshots.end(self.world.communicator)
        tests = self._tests
        self._meter.finish(
            self.iteration, self._stopped, last_state, tests.scores, tests.tested_at, self._replicas, mean_scores
        )
        if failure is not None:
            raise failure

    def step(self, iterations: int) -> None:
        """Make so many updates (fewer after a stop), with the tests, displays and snapshots due then."""
        self._replicas.start()
        self._smoothed.restart()
        self._stopped = False
        self._meter.start_display(self.iteration)
        with self._workers.running(self.iteration, self.iteration + iterations, self.seed):
            # After a stop worker 0 may have to catch up with others.
            while self.iteration < self._workers.end:
                if not self._stopped and self._is_test_due and (self.iteration or self.param.test_initialization):
                    self.test_all()
                if self.iteration < self._workers.end:
                    self._iterate()
        self.complete_update()
        self._snapshots.wait()

    def finish_training(self) -> None:
        """Return when all trainers have ended theirs; warn where a stop has left some behind."""
        if self._tables is not None:
            self._tables.settle()
        self._replicas.finish(self.iteration, lambda: self._stop_requested)
        self._stopped = self._stopped or self._replicas.stop_requested
        self._meter.training_done()

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return self._policy.rate(self.iteration)

    def apply_update(self) -> None:
        """Make one update by the gradients that lie in the net (Caffe: ApplyUpdate)."""
        self._trainer.apply_update(self.rate, self.iteration)
        self.iteration += 1

    def add_callback(self, on_start: Callable[[], None], on_gradients_ready: Callable[[], None]) -> None:
        """Register functions to call before each iteration's gradients are computed, and before they are applied."""
        self._on_start.append(on_start)
        self._on_gradients_ready.append(on_gradients_ready)

    def observe(self, observer: IterationObserver) -> None:
        """Register the observer that is to be called when updates, communication and synchronizations happen."""
        self._trainer.observer = observer
        self._replicas.observe(observer.synchronized)

    @property
    def is_planning(self) -> bool:
        """Whether plans for merging gradients are still being measured and tried."""
        return self._averaging.is_searching

    def request_stop(self) -> None:
        """Ask all ranks to end after this iteration; one of them may call it alone, from a signal handler."""
        self._stop_requested = True

    def request_snapshot(self) -> None:
        """Ask for a snapshot after this iteration; one rank may call it alone, from a signal handler."""
        self._snapshot_requested = True

    # -- the phases of an iteration ----------------------------------------------------------------------

    def _iterate(self) -> None:
        iteration = self._compute_gradients()
        self._agree(iteration)
        iteration.is_skipped = self._refuses_update(iteration)
        if not iteration.is_skipped:
            self._choose_rate(iteration)
            self._take_gradients(iteration)
            if self._is_due(self.param.display):
                self._display(iteration)
            self._update(iteration)
            self._meter.iteration_done(iteration)
        elif math.isfinite(iteration.loss) and self._loss_scale.state is not None:
            # The loss is one like others: only its gradients were multiplied by too much.
            self._choose_rate(iteration)
            if self._is_due(self.param.display):
                self._display(iteration)
        self._end(iteration)

    def _compute_gradients(self) -> TrainingIteration:
        """Run the forward and backward passes; communication of the gradients goes on after them."""
        began = time.perf_counter()
        self._workers.begin(self.iteration)
        for callback in self._on_start:
            callback()
        self._debug.begin(self._is_due(self.param.display))
        self._finite.begin()
        gradients = self._trainer.compute_gradients(self.seed, self.iteration, together=self._needs_all_gradients)
        return TrainingIteration(self.iteration, began, gradients.loss, gradients.data_wait_s, gradients.data_work_s)

    def _agree(self, iteration: TrainingIteration) -> None:
        """Exchange all that the ranks have to agree on before the update, in one small all-reduce."""
        self._snapshots.poll()
        stop = self._replicas.pass_on_stop(self._stop_requested or self._snapshots.wants_stop)
        mine = [iteration.own_loss, float(stop), float(self._snapshot_requested), self._finite.probe()]
        iteration.loss, stops, snapshots, iteration.probe = self.ranks.mean(mine).tolist()
        iteration.stop, iteration.snapshot = stops > 0, snapshots > 0
        iteration.snapshot = self._replicas.wants_snapshot(iteration.snapshot)

    def _refuses_update(self, iteration: TrainingIteration) -> bool:
        """Check that loss and gradients are finite on all ranks; raise, or skip the update, as `nan_effect` says."""
        if not (math.isfinite(iteration.loss) and math.isfinite(iteration.probe)):
            self._trainer.wait()
        return self._finite.refuses(iteration, self.seed, self._snapshot_of_the_last)

    def _snapshot_of_the_last(self) -> None:
        """Write a snapshot of the last complete iteration; collective."""
        self._rewind_test()
        self.snapshot()

    @property
    def _needs_all_gradients(self) -> bool:
        """Whether callbacks, debug_info or a rescue look at all gradients, or at weights, before an update ends."""
        return bool(self._on_start or self._on_gradients_ready or self.param.debug_info or ulfm.is_enabled())

    def _choose_rate(self, iteration: TrainingIteration) -> None:
        iteration.smoothed_loss = self._smoothed.add(iteration.loss)
        if (news := self._policy.observe(iteration.number, iteration.smoothed_loss)) is not None:
            self._emit(events.Noted(news))
        iteration.rate = self._policy.rate(iteration.number)

    def _take_gradients(self, iteration: TrainingIteration) -> None:
        """Wait for the means of the gradients, and update each group as it comes where nothing needs them all."""
        found = self._trainer.take_gradients(iteration.rate, iteration.number, together=self._needs_all_gradients)
        iteration.comm, iteration.is_updated = found
        self._meter.communicated(iteration.comm)

    def _display(self, iteration: TrainingIteration) -> None:
        outputs = tester.label_outputs(self.net, self.ranks.mean(tester.output_numbers(self.net)))
        self._meter.display(iteration, self.param.display, outputs)
        self._replicas.display(iteration.number, self._trainer.records_per_iteration * self._workers.count)
        if self._tables is not None:
            self._tables.display(iteration.number, self._emit)
        self._emit(events.LearningRate(iteration.number, iteration.rate))

    def _update(self, iteration: TrainingIteration) -> None:
        if self._on_gradients_ready:
            self._trainer.unscale_gradients()
        for callback in self._on_gradients_ready:
            callback()
        self._debug.before_update()
        if not iteration.is_updated:
            with self._workers.lock:
                self._trainer.apply_update(iteration.rate, iteration.number)
        self._debug.after_update()

    def _end(self, iteration: TrainingIteration) -> None:
        """Count the iteration, take the snapshot that is due, and let `auto` choose another plan."""
        self.iteration += 1
        self._finite.end()
        self._replicas.iteration_done()
        if iteration.snapshot:
            self._workers.call_meeting()
        if self._workers.is_called_to(self.iteration) or self._is_due(self.param.snapshot):
            self._snapshot_requested = False
            self._take_snapshot()
        if iteration.stop:
            self._stop()
        if iteration.is_skipped:
            self._trainer.drop_gradients()
            self._averaging.iteration_skipped()
        else:
            self._averaging.after_update(self.iteration)

    @property
    def _is_test_due(self) -> bool:
        """Whether this rank is to test now: of trainers with replicas of their own the first one alone does."""
        return self._is_due(self.param.test_interval) and (self._is_first or self.ranks is self.world)

    def _is_due(self, interval: int) -> bool:
        return interval > 0 and self.iteration % interval == 0

    def _display_last(self) -> None:
        """Show the loss after the last update."""
        loss = self._trainer.loss_without_trace(self.seed, self.iteration)
        shown = self._smoothed.copy().add(float(self.ranks.mean([loss])[0]))
        self._emit(events.Displayed(self.iteration, shown, None, None, None, ()))

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
