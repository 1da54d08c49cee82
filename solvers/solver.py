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
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

import torch

from mgcaffe.comm import Communicator, SingleCommunicator
from mgcaffe.comm.supervision import status
from mgcaffe.comm.transport import ulfm
from mgcaffe.errors import SnapshotError
from mgcaffe.prototxt import SolverParameter, SolverSource
from mgcaffe.solvers import events
from mgcaffe.solvers.exchange.averaging import GradientAveraging
from mgcaffe.solvers.exchange.ranks import Ranks
from mgcaffe.solvers.monitor.debug_info import DebugInfo
from mgcaffe.solvers.monitor.finite_check import FiniteCheck
from mgcaffe.solvers.monitor.meter import Meter
from mgcaffe.solvers.monitor.smoothing import SmoothedLoss
from mgcaffe.solvers.rates.policies import LearningRatePolicy
from mgcaffe.solvers.replicas.replicas import Replicas
from mgcaffe.solvers.replicas.sync_settings import sync_settings, sync_warnings
from mgcaffe.solvers.setup.building import BuiltNets, build_nets, copy_weights, refuse_tables_of_replicas
from mgcaffe.solvers.setup.checks import check_fields
from mgcaffe.solvers.setup.hogwild import check_net_of_workers, check_workers
from mgcaffe.solvers.setup.nets import NetReader
from mgcaffe.solvers.snapshots.reading import restore_snapshot
from mgcaffe.solvers.snapshots.replica_files import restore_replica
from mgcaffe.solvers.snapshots.resuming import RunState
from mgcaffe.solvers.snapshots.state import Progress
from mgcaffe.solvers.snapshots.writer import Snapshots, check_prefix
from mgcaffe.solvers.tables.settings import check_embeddings
from mgcaffe.solvers.testing import tester
from mgcaffe.solvers.testing.mean_of_all import score_mean_of_all
from mgcaffe.solvers.testing.test_runs import TestRuns
from mgcaffe.solvers.trainer import IterationObserver, Trainer
from mgcaffe.solvers.training_iteration import TrainingIteration
from mgcaffe.solvers.update.updater import Updater
from mgcaffe.solvers.workers.hogwild import HogwildWorkers

T = TypeVar("T")


class Solver:
    """Trains a net as its SolverParameter says.

    Args:
        param: the SolverParameter message.
        source: where its fields stand (`read_solver_source`), for errors and the default snapshot prefix.
        communicator: the ranks that train together; None: this one alone.
        listeners: take the events.
        weights: caffemodels to start from; None: those that the solver names.
        schedule: how gradients are merged; None: comm_param.schedule.
        dtype: float32 or float64.
        device: where to train; None: as solver_mode says.
        strict: whether an unknown field in a net's file is an error.
        keep_blobs: whether the nets' values and gradients stay readable after a pass, at the cost of memory.
        sync_servers: the same ranks and, behind them, the synchronization servers; None: there are none.
        embedding_servers: the same ranks and, behind them, the embedding servers; None: there are none.

    Attributes:
        iteration: how many times the weights have been updated, always; with several Hogwild workers, by worker 0.
        net, test_nets: the training net, and the test nets, which share its weights.
        worker_nets: the training nets of all Hogwild workers, `net` first.
        seed: what every random number of the run derives from.
        world: all ranks.
        ranks: those that train in step: all of them, or, where each is a trainer with a replica of its own
            (`comm_param.sync`), this one alone.

    Raises:
        PrototxtError, NetError, DataError, SolverError: an input that cannot be trained, with its place.
        SnapshotError: (exit code 73) snapshots are due and cannot be written.
        RankDisagreement: the ranks were given different inputs.
    """

    def __init__(
        self,
        param: SolverParameter,
        *,
        source: SolverSource | None = None,
        communicator: Communicator | None = None,
        listeners: Iterable[events.SolverListener] = (),
        weights: Sequence[str] | None = None,
        schedule: str | None = None,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device | None = None,
        strict: bool = False,
        keep_blobs: bool = False,
        sync_servers: Communicator | None = None,
        embedding_servers: Communicator | None = None,
    ) -> None:
        self.param = param
        self.listeners = list(listeners)
        self.iteration = 0
        self.world = Ranks(communicator if communicator is not None else SingleCommunicator())
        sync = sync_settings(param, source)
        self.ranks = self.world if sync is None else Ranks(SingleCommunicator())
        self._on_start: list[Callable[[], None]] = []
        self._on_gradients_ready: list[Callable[[], None]] = []
        self._stop_requested = self._snapshot_requested = self._stopped = False
        self._warn([*check_fields(param, source), *check_workers(param, source, self.ranks.size)])
        self._policy = LearningRatePolicy(param, source)
        self._warn([*self._policy.warnings, *sync_warnings(param, self.world.size, source)])
        self._warn(check_embeddings(param, self.world.size, embedding_servers is not None, source))
        check_prefix(param, source, self.world.rank)
        with ExitStack() as opened:
            reader = NetReader(param, source, strict)
            nets = build_nets(
                param, reader, self.world, self.ranks, self._emit, opened, dtype, device, keep_blobs, embedding_servers
            )
            self.net, self.test_nets, self.worker_nets, self.seed = nets.train, nets.tests, nets.workers, nets.seed
            self._replicas = Replicas(sync, self.net, self.world.communicator, self._emit, sync_servers)
            self._build(nets, source, schedule, opened)
            self.load_weights(param.weights if weights is None else weights)
            self._opened = opened.pop_all()

    def _build(self, nets: BuiltNets, source: SolverSource | None, schedule: str | None, opened: ExitStack) -> None:
        """Make the parts that an iteration, a test and a snapshot go through."""
        param, net, ranks, rank = self.param, self.net, self.ranks, self.world.rank
        refuse_tables_of_replicas(net, param, self.world.size)
        check_net_of_workers(param, source, net)
        self._updater = Updater(param, net.arena, source)
        self._tables = nets.tables
        if self._tables is not None:
            self._tables.histories = self._updater.table_histories
            self._updater.update_elsewhere = self._tables.update
        self._warn(self._updater.warnings)
        self._averaging = GradientAveraging(net, ranks.communicator, param, schedule, self._emit)
        opened.callback(self._averaging.close)
        rates, workers = self._policy.rate, len(nets.workers)
        self._workers = HogwildWorkers(nets.workers, rank, self._updater, param, rates, self._replicas, self._emit)
        self._trainer = Trainer(net, self._updater, self._averaging, param, rank * workers)
        records = self._trainer.records_per_iteration * ranks.size
        self._meter = Meter(self._emit, records, workers, lambda: self._workers.records)
        self._finite = FiniteCheck(net, ranks.communicator, param, self._emit, rank, workers=workers)
        self._averaging.on_ready = self._finite.gradients_ready
        self._debug = DebugInfo(net, param, rank, self._emit)
        self._smoothed = SmoothedLoss(param.average_loss)
        self._tests = TestRuns(self.test_nets, ranks, param.test_compute_loss, self._emit)
        self._snapshots = Snapshots(
            param, source, net, self.test_nets, self._updater, self._emit, rank if self._replicas.are_all_saved else 0
        )
        opened.callback(self._snapshots.close)
        self._state = RunState(
            param, nets, self.world, ranks, self._updater, self._policy, self._smoothed, self._averaging,
            self._replicas, self._emit,
        )  # fmt: skip

    # -- training ----------------------------------------------------------------------------------------

    def solve(self) -> None:
        """Train up to max_iter, or until a stop is requested, with the tests and snapshots on the way."""
        self._meter.start_run()
        self._emit(self._state.started(self.iteration, self._trainer.records_per_iteration))
        if self.iteration >= self.param.max_iter:
            self._warn([f"nothing to train: iteration {self.iteration}, max_iter {self.param.max_iter}"])
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
        mean_scores = score_mean_of_all(self.test_nets, self.world, self._replicas, self.seed, self.iteration, due)
        failure, last_state = self._snapshots.end(self.world.communicator)
        self._meter.finish(self.iteration, self._stopped, last_state, self._tests.scores, self._replicas, mean_scores)
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

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return self._policy.rate(self.iteration)

    @property
    def scores(self) -> tuple[tuple[events.OutputValue, ...], ...]:
        """The mean outputs of the last complete test, for each test net; empty before the first."""
        return self._tests.scores

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

    def complete_update(self) -> None:
        """Complete an update that was left to the next forward pass, before weights are read between iterations.

        Where the plan overlaps the forward pass, the weights of the layers whose groups have not come are those before
        the update. `step`, tests and snapshots do this by themselves; listeners who read weights call it. Collective.
        """
        report = self._trainer.complete_update()
        if report is not None:
            self._meter.communicated(report)

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
        self._end(iteration)

    def _compute_gradients(self) -> TrainingIteration:
        """Run the forward and backward passes; communication of the gradients goes on after them."""
        began = time.perf_counter()
        self._workers.begin(self.iteration)
        for callback in self._on_start:
            callback()
        self._debug.begin(self._is_due(self.param.display))
        self._finite.begin()
        gradients = self._trainer.compute_gradients(self.seed, self.iteration)
        return TrainingIteration(self.iteration, began, gradients.loss, gradients.data_wait_s)

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
        return self._finite.refuses(iteration, self.seed, self.snapshot)

    def _choose_rate(self, iteration: TrainingIteration) -> None:
        iteration.smoothed_loss = self._smoothed.add(iteration.loss)
        if (news := self._policy.observe(iteration.number, iteration.smoothed_loss)) is not None:
            self._emit(events.Noted(news))
        iteration.rate = self._policy.rate(iteration.number)

    def _take_gradients(self, iteration: TrainingIteration) -> None:
        """Wait for the means of the gradients, and update each group as it comes where nothing needs them all."""
        # Callbacks, debug_info and a rescue look at all gradients, or at weights, before an update ends.
        together = bool(self._on_start or self._on_gradients_ready or self.param.debug_info or ulfm.is_enabled())
        found = self._trainer.take_gradients(iteration.rate, iteration.number, together=together)
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
            self._averaging.iteration_skipped()
        else:
            self._averaging.after_update(self.iteration)

    def _stop(self) -> None:
        """End training as soon as all workers have made as many iterations."""
        self._stop_requested, self._stopped = False, True
        self._workers.stop()

    @property
    def _is_first(self) -> bool:
        """Whether this is the rank that writes and, where trainers have replicas of their own, tests."""
        return self.world.rank == 0

    @property
    def _is_test_due(self) -> bool:
        """Whether this rank is to test now: of trainers with replicas of their own the first one alone does."""
        return self._is_due(self.param.test_interval) and (self._is_first or self.ranks is self.world)

    def finish_training(self) -> None:
        """Return when all trainers have ended theirs; warn where a stop has left some behind."""
        self._replicas.finish(self.iteration, lambda: self._stop_requested)
        self._stopped = self._stopped or self._replicas.stop_requested
        self._meter.training_done()

    def _is_due(self, interval: int) -> bool:
        return interval > 0 and self.iteration % interval == 0

    def _display_last(self) -> None:
        """Show the loss after the last update."""
        loss = self._trainer.loss_without_trace(self.seed, self.iteration)
        shown = self._smoothed.copy().add(float(self.ranks.mean([loss])[0]))
        self._emit(events.Displayed(self.iteration, shown, None, None, None, ()))

    # -- tests, weights and snapshots --------------------------------------------------------------------

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

    def _take_if_best(self, before: Progress) -> None:
        with self._replicas.lock:
            self._snapshots.take_if_best(self._tests.scores, before)

    def _wants_stop(self) -> bool:
        """Return whether this rank wants to leave a test; raise what has ended one of its workers meanwhile."""
        self._workers.check()
        return self._stop_requested or self._replicas.stop_requested

    def load_weights(self, paths: Sequence[str]) -> None:
        """Copy weights by layer name into all nets; later files win. Entries may be comma-separated lists.

        Raises:
            NetError, PrototxtError: on rank 0, which alone reads them.
        """
        self._on_rank0(lambda: copy_weights(paths, self.net, self.test_nets, self._emit))
        self.world.broadcast_from_rank0([t for net in (self.net, *self.test_nets) for t in net.arena.tensors()])
        self._workers.take_statistics()

    def snapshot(self) -> None:
        """Write `<prefix>_iter_<N>.caffemodel` and `.solverstate`; rank 0 writes, all ranks in step take part.

        Raises:
            SnapshotError: on every rank in step: a file cannot be written.
        """
        self._take_snapshot()
        failure, _ = self._snapshots.end(self.ranks.communicator)
        if failure is not None:
            raise failure

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
            SnapshotError: rows of tables are gone with the other ranks.
        """
        if self._tables is not None:
            raise SnapshotError("tables are divided among the ranks, and rows of them are gone with the others")
        self._finite.rewind()
        self._snapshots.take(self._state.progress(self.iteration, self.seed, alone=True))
        self._snapshots.wait()
        return self._snapshots.last_state if self._snapshots.failure is None else None

    def _on_rank0(self, work: Callable[[], T]) -> T | None:
        """Run `work` on rank 0, which alone handles files, and return its result there, None elsewhere; collective.

        The other ranks meanwhile give and take the rows of tables that lie in them.
        """
        if self._tables is not None:
            return self._tables.lead(work)
        return work() if self._is_first else None

    def close(self) -> None:
        """End the exchange of gradients and the data layers' threads."""
        self._opened.close()

    def __enter__(self) -> Solver:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _emit(self, event: events.Event) -> None:
        for listener in self.listeners:
            listener.on_event(event)

    def _warn(self, texts: Iterable[str]) -> None:
        for text in texts:
            self._emit(events.Warned(text))
