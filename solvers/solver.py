"""The solver: reads a SolverParameter, builds its nets, and trains (Caffe: solver.cpp).

    with Solver(source.param, source=source, listeners=[log]) as solver:
        solver.restore("lenet_iter_5000.solverstate")      # optional
        solver.solve()

With several ranks every rank makes one and calls the same methods in the same order; rank 0 alone reads and
writes snapshots. The solver prints nothing: what happens, it tells its listeners (`events`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

import torch

from mgcaffe.comm import Communicator, SingleCommunicator
from mgcaffe.comm.supervision import status
from mgcaffe.comm.transport import ulfm
from mgcaffe.engine import Net
from mgcaffe.prototxt import SolverParameter, SolverSource
from mgcaffe.solvers import carried_state, events
from mgcaffe.solvers.exchange.averaging import GradientAveraging
from mgcaffe.solvers.exchange.ranks import Ranks
from mgcaffe.solvers.monitor.debug_info import DebugInfo, watch_tests
from mgcaffe.solvers.monitor.finite_check import FiniteCheck
from mgcaffe.solvers.monitor.meter import Meter
from mgcaffe.solvers.monitor.smoothing import SmoothedLoss
from mgcaffe.solvers.rates.policies import LearningRatePolicy
from mgcaffe.solvers.setup import building
from mgcaffe.solvers.setup.checks import check_fields
from mgcaffe.solvers.setup.nets import NetReader
from mgcaffe.solvers.snapshots import names, resuming
from mgcaffe.solvers.snapshots.best import BestRule
from mgcaffe.solvers.snapshots.files import probe_writable
from mgcaffe.solvers.snapshots.reading import load_snapshot
from mgcaffe.solvers.snapshots.state import Progress
from mgcaffe.solvers.snapshots.writer import Snapshots
from mgcaffe.solvers.source import locate
from mgcaffe.solvers.testing import tester
from mgcaffe.solvers.testing.test_runs import TestRuns
from mgcaffe.solvers.trainer import IterationObserver, Trainer
from mgcaffe.solvers.update.updater import Updater


class Solver:
    """Trains a net as its SolverParameter says.

    Args:
        param: the SolverParameter message, upgraded.
        source: where its fields stand (`read_solver_source`), for errors and the default snapshot prefix.
        communicator: the ranks that train in step; None: this one alone.
        listeners: who is told what happens.
        weights: caffemodels to start from; None: those that the solver names.
        schedule: how gradients are merged; None: comm_param.schedule.
        dtype: float32 or float64.
        device: where to train; None: as solver_mode says.
        strict: whether an unknown field in a net's file is an error.
        keep_blobs: whether the nets' values and gradients stay readable after a pass, at the cost of memory.

    Attributes:
        iteration: how many times the weights have been updated, always.
        net, test_nets: the training net, and the test nets, which share its weights.
        seed: what every random number of the run derives from.
        ranks: the ranks that train in step.

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
    ) -> None:
        self.param = param
        self.listeners = list(listeners)
        self.iteration = 0
        self._on_start: list[Callable[[], None]] = []
        self._on_gradients_ready: list[Callable[[], None]] = []
        self._source = source
        self._communicator = communicator if communicator is not None else SingleCommunicator()
        self.ranks = Ranks(self._communicator)
        for text in check_fields(param, source):
            self._emit(events.Warned(text))
        self._policy = LearningRatePolicy(param, source)
        for field in self._policy.unset_fields():
            self._emit(
                events.Warned(f"lr_policy '{self._policy.name}' reads {field}, which is not set and counts as 0")
            )
        self._prefix = self._check_prefix()
        self._smoothed = SmoothedLoss(param.average_loss)
        self._window_is_restored = False
        self._stop_wanted = self._snapshot_wanted = self._stopped = False
        self._scores: tuple[tuple[events.OutputValue, ...], ...] = ()
        with ExitStack() as opened:
            self._build_nets(dtype, device, strict, keep_blobs or param.debug_info, opened)
            self._build_trainer(schedule, opened)
            self._build_snapshots(opened)
            self.load_weights(param.weights if weights is None else weights)
            self._opened = opened.pop_all()

    def _check_prefix(self) -> Path | None:
        """Finds out now, not after hours of training, that snapshots cannot be written."""
        if not (self.param.snapshot or self.param.snapshot_after_train or self.param.snapshot_best):
            return None
        prefix = names.snapshot_prefix(self.param, self._source)
        if self.ranks.rank == 0:
            given = self.param.HasField("snapshot_prefix")
            probe_writable(prefix, locate(self._source, "snapshot_prefix") if given else None)
        return prefix

    def _build_nets(
        self,
        dtype: torch.dtype,
        device: str | torch.device | None,
        strict: bool,
        keep_blobs: bool,
        opened: ExitStack,
    ) -> None:
        reader = NetReader(self.param, self._source, strict)
        train, *tests = [reader.train_net(), *reader.test_nets()]
        building.agree_on_inputs(self.param, [train, *tests], dtype, self._communicator)
        if device is None:
            device = building.choose_device(self.param, self._communicator, self._emit)
        self.seed = building.choose_seed(self.param, self._communicator)
        divisors = Ranks(self._communicator.duplicate())
        self.net = building.build_train_net(
            train, self.ranks, divisors, self.seed, dtype, torch.device(device), keep_blobs
        )
        opened.callback(self.net.close)
        self.test_nets = building.build_test_nets(tests, self.net, self.ranks, opened)
        watch_tests(self.test_nets, self.param, self.ranks.rank, self._emit)
        building.agree_on_shapes(self.net, self._communicator)
        self._tests = TestRuns(self.test_nets, self.ranks, self.param.test_compute_loss, self._emit)
        carried_state.warn_of_ranks(train.param, self.ranks.size, self._emit)

    def _build_trainer(self, schedule: str | None, opened: ExitStack) -> None:
        param = self.param
        self._updater = Updater(param, self.net.arena, self._source)
        for text in self._updater.warnings:
            self._emit(events.Warned(text))
        self._averaging = GradientAveraging(self.net, self._communicator, param, schedule, self._emit)
        opened.callback(self._averaging.close)
        self._trainer = Trainer(self.net, self._updater, self._averaging, param, self.ranks.rank)
        self._meter = Meter(self._emit, self._trainer.records_per_iteration * self.ranks.size)
        self._finite = FiniteCheck(self.net, self._communicator, param, self._emit)
        self._averaging.on_ready = self._finite.gradients_ready
        self._debug = DebugInfo(self.net, param, self.ranks.rank, self._emit)

    def _build_snapshots(self, opened: ExitStack) -> None:
        best = self.param.snapshot_best
        self._best_rule = BestRule(best, self.test_nets, self._source) if best else None
        self._snapshots = Snapshots(
            self.param, self._snapshot_prefix, self.net, self._updater, self._best_rule, self._emit
        )
        opened.callback(self._snapshots.close)

    # -- training ----------------------------------------------------------------------------------------

    def solve(self) -> None:
        """Trains up to max_iter, or until a stop is requested, with the tests and snapshots on the way."""
        self._meter.start_run()
        self._emit(
            events.Started(
                net=self.net.name,
                solver_type=self._updater.name,
                policy=self._policy.name,
                iteration=self.iteration,
                max_iter=self.param.max_iter,
                batch_size=self._trainer.records_per_iteration * self.ranks.size,
                parameters=sum(parameter.count for parameter in self.net.parameters),
                ranks=self.ranks.size,
                test_nets=len(self.test_nets),
            )
        )
        if self.iteration >= self.param.max_iter:
            self._emit(events.Warned(f"nothing to train: iteration {self.iteration}, max_iter {self.param.max_iter}"))
        self.step(self.param.max_iter - self.iteration)
        is_taken = self._is_due(self.param.snapshot) and self.iteration > 0
        if self.param.snapshot_after_train and not is_taken:
            self._take_snapshot()
        if not self._stopped:
            if self._is_due(self.param.display):
                self._display_last()
            if self._is_due(self.param.test_interval):
                self.test_all()
        failure, last_state = self._snapshots.end(self._communicator)
        self._meter.finish(self.iteration, self._stopped, last_state, self._scores)
        if failure is not None:
            raise failure

    def step(self, iterations: int) -> None:
        """Makes so many updates (fewer after a stop), with the tests, displays and snapshots due then."""
        if not self._window_is_restored:
            self._smoothed.restart()
        self._window_is_restored = self._stopped = False
        self._meter.start_display(self.iteration)
        end = self.iteration + iterations
        while self.iteration < end and not self._stopped:
            if self._is_due(self.param.test_interval) and (self.iteration or self.param.test_initialization):
                self.test_all()
                if self._stopped:
                    break
            self._iterate()
        self.settle()
        self._snapshots.wait()

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return self._policy.rate(self.iteration)

    @property
    def scores(self) -> tuple[tuple[events.OutputValue, ...], ...]:
        """The mean outputs of the last complete test, for each test net; empty before the first."""
        return self._scores

    def apply_update(self) -> None:
        """Makes one update by the gradients that lie in the net (Caffe: ApplyUpdate)."""
        self._trainer.apply_update(self.rate, self.iteration)
        self.iteration += 1

    def add_callback(self, on_start: Callable[[], None], on_gradients_ready: Callable[[], None]) -> None:
        """Has functions called before each iteration's gradients are computed, and before they are applied."""
        self._on_start.append(on_start)
        self._on_gradients_ready.append(on_gradients_ready)

    def observe(self, observer: IterationObserver) -> None:
        """Has somebody told when updates and communication happen."""
        self._trainer.observer = observer

    def settle(self) -> None:
        """Completes an update whose last gradients are on their way: for whoever looks at weights between iterations.

        Where the plan overlaps the forward pass, the weights of the layers whose groups have not come are those before
        the update. `step`, tests and snapshots settle by themselves; listeners who read weights call it. Collective.
        """
        report = self._trainer.complete_update()
        if report is not None:
            self._meter.communicated(report)

    @property
    def is_planning(self) -> bool:
        """Whether plans for merging gradients are still being measured and tried."""
        return self._averaging.is_searching

    def request_stop(self) -> None:
        """Asks all ranks to end after this iteration; may be called by one alone, from a signal handler."""
        self._stop_wanted = True

    def request_snapshot(self) -> None:
        """Asks for a snapshot after this iteration, likewise."""
        self._snapshot_wanted = True

    def _iterate(self) -> None:
        began = time.perf_counter()
        for callback in self._on_start:
            callback()
        self._debug.begin(self._is_due(self.param.display))
        self._finite.begin()
        gradients = self._trainer.compute_gradients(self.seed, self.iteration)
        # One small exchange carries all that the ranks have to agree on.
        self._snapshots.poll()
        wishes = [float(self._stop_wanted or self._snapshots.wants_stop), float(self._snapshot_wanted)]
        loss, stop, snap, probe = self.ranks.mean([gradients.loss, *wishes, self._finite.probe()]).tolist()
        if not (math.isfinite(loss) and math.isfinite(probe)):
            self._trainer.wait()
        if self._finite.blocks(
            loss, probe, own_loss=gradients.loss, seed=self.seed, iteration=self.iteration, snapshot=self.snapshot
        ):
            self.iteration += 1
            self._end_iteration(bool(stop), bool(snap), is_skipped=True)
            return
        smoothed = self._smoothed.add(loss)
        if (news := self._policy.observe(self.iteration, smoothed)) is not None:
            self._emit(events.Noted(news))
        rate = self._policy.rate(self.iteration)
        # Whoever looks at all gradients, or at weights, before an update ends must find them complete.
        watched = bool(self._on_start or self._on_gradients_ready or self.param.debug_info or ulfm.is_enabled())
        comm, is_updated = self._trainer.take_gradients(rate, self.iteration, together=watched)
        self._meter.communicated(comm)
        if self._is_due(self.param.display):
            numbers = self.ranks.mean(tester.output_numbers(self.net))
            outputs = tester.label_outputs(self.net, numbers)
            self._meter.display(self.iteration, smoothed, self.param.display, outputs)
            self._emit(events.LearningRate(self.iteration, rate))
        for callback in self._on_gradients_ready:
            callback()
        self._debug.before_update()
        if not is_updated:
            self._trainer.apply_update(rate, self.iteration)
        self._debug.after_update()
        self._meter.iteration_done(
            self.iteration,
            loss,
            smoothed,
            rate,
            seconds=time.perf_counter() - began,
            data_wait_s=gradients.data_wait_s,
            comm=comm,
        )
        self.iteration += 1
        self._end_iteration(bool(stop), bool(snap))

    def _end_iteration(self, stop: bool, snap: bool, *, is_skipped: bool = False) -> None:
        self._finite.end()
        if snap or self._is_due(self.param.snapshot):
            self._snapshot_wanted = False
            self._take_snapshot()
        if stop:
            self._stop_wanted, self._stopped = False, True
        if is_skipped:
            self._averaging.iteration_skipped()
        else:
            self._averaging.after_update(self.iteration)

    def _is_due(self, interval: int) -> bool:
        return interval > 0 and self.iteration % interval == 0

    def _display_last(self) -> None:
        """Shows the loss after the last update."""
        loss = self._trainer.loss_without_trace(self.seed, self.iteration)
        window = SmoothedLoss(self.param.average_loss)
        window.restart(self._smoothed.losses)
        smoothed = window.add(float(self.ranks.mean([loss])[0]))
        self._emit(events.Displayed(self.iteration, smoothed, None, None, None, ()))

    # -- testing -----------------------------------------------------------------------------------------

    def test_all(self) -> None:
        """Tests every test net on all ranks; `snapshot_best` then keeps the best weights."""
        self.settle()
        self.ranks.average_statistics(self.net)
        before = self._progress() if self._best_rule is not None else None
        scores = self._tests.run(self.seed, self.iteration, lambda: self._stop_wanted)
        if scores is None:
            self._stop_wanted, self._stopped = False, True
            return
        self._scores = scores
        if before is not None and self.ranks.rank == 0:
            self._snapshots.take_if_best(self._scores, before)

    # -- weights and snapshots ---------------------------------------------------------------------------

    def load_weights(self, paths: Sequence[str]) -> None:
        """Copies weights by layer name into all nets; later files win. Entries may be comma-separated lists.

        Raises:
            NetError, PrototxtError: on rank 0, which alone reads them.
        """
        files = [name for entry in paths for name in entry.split(",") if name]
        if files and self.ranks.rank == 0:
            for file in files:
                self._copy_weights(self.net, file, "train")
                for index, net in enumerate(self.test_nets):
                    if net.arena.data.numel():  # a test net may have layers that the training net lacks
                        self._copy_weights(net, file, f"test #{index}")
        self._share_beginning()

    def snapshot(self) -> None:
        """Writes `<prefix>_iter_<N>.caffemodel` and `.solverstate`; rank 0 writes, all ranks take part.

        Raises:
            SnapshotError: on every rank: a file cannot be written.
        """
        self._take_snapshot()
        failure, _ = self._snapshots.end(self._communicator)
        if failure is not None:
            raise failure

    def _snapshot_prefix(self) -> Path:
        return self._prefix or names.snapshot_prefix(self.param, self._source)

    def _take_snapshot(self) -> None:
        """Has the weights written as they are now; what goes wrong then is told by a warning (collective)."""
        status.doing("snapshot")
        self.settle()
        self._snapshot_prefix()  # a missing one is an error on every rank
        self.ranks.average_statistics(self.net)
        progress = self._progress()
        if self.ranks.rank == 0:
            self._snapshots.take(progress)

    def restore(self, path: str) -> None:
        """Goes on from a solverstate as if training had never stopped; from Caffe's as far as it says.

        Raises:
            SnapshotError: (exit code 65) on rank 0, which alone reads it: no solverstate, or not of this
                solver.
        """
        progress: Progress | None = None
        if self.ranks.rank == 0:
            progress = load_snapshot(path, self.net, self._updater, self._emit)
        progress = self._communicator.broadcast_object(progress)
        assert progress is not None
        self._share_beginning(self._updater.histories)
        self._continue_from(path, progress)

    def rescue(self) -> str | None:
        """Writes a snapshot of this rank's weights, which are all ranks', once others are gone; not collective.

        What the iteration that was cut short had changed is put back first.

        Returns:
            The solverstate's path, or None where it could not be written.
        """
        self._finite.rewind()
        self._snapshots.take(self._progress(alone=True))
        self._snapshots.wait()
        return self._snapshots.last_state if self._snapshots.failure is None else None

    def _progress(self, alone: bool = False) -> Progress:
        """Where the solver stands; collective unless this rank is alone, and complete on rank 0."""
        plan = self._averaging.plan
        return Progress(
            iteration=self.iteration,
            current_step=self._policy.current_step(self.iteration),
            seed=self.seed,
            world_size=self.ranks.size,
            records=resuming.data_positions(self.net, self.test_nets),
            smoothed_losses=self._smoothed.losses,
            plateau=self._policy.state,
            correlations=self._updater.correlations,
            solver_type=self._updater.name,
            plan=plan.to_json() if plan is not None else "",
            recurrent=carried_state.gather(
                self.net, self.test_nets, SingleCommunicator() if alone else self._communicator
            ),
        )

    def _continue_from(self, path: str, progress: Progress) -> None:
        self.iteration = progress.iteration
        nets = [self.net, *self.test_nets]
        if progress.seed is not None:
            self.seed = progress.seed
            resuming.take_seed(nets, self.seed, self.param, self._emit)
        self._smoothed.restart(progress.smoothed_losses)
        missing = self._policy.resume(progress.plateau, progress.iteration, progress.current_step)
        for text in (missing, self._updater.resume(progress.correlations)):
            if text is not None:
                self._emit(events.Warned(text))
        self._snapshots.resume(path, progress.iteration, progress.best)
        self._window_is_restored = True
        resuming.warn_of_ranks(progress.world_size, self.ranks.size, self._emit)
        carried_state.put_back(
            self.net, self.test_nets, progress.recurrent, self.ranks.rank, self.ranks.size, self._emit
        )
        if progress.world_size == self.ranks.size:
            self._averaging.adopt(progress.plan)
        resuming.seek_data(
            self.net,
            self.test_nets,
            progress.records,
            param=self.param,
            iteration=self.iteration,
            world_size=self.ranks.size,
            emit=self._emit,
        )

    def _copy_weights(self, net: Net, file: str, name: str) -> None:
        self._emit(events.WeightsCopied(file, name, net.copy_trained_layers(file)))

    def _share_beginning(self, histories: Sequence[torch.Tensor] = ()) -> None:
        """Gives every rank the weights (and histories) of rank 0."""
        self.ranks.from_first([self.net.arena.data, *(net.arena.data for net in self.test_nets), *histories])

    # -- the rest ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the exchange of gradients and the data layers' threads."""
        self._opened.close()

    def __enter__(self) -> Solver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _emit(self, event: events.Event) -> None:
        for listener in self.listeners:
            listener.on_event(event)
