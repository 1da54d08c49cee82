"""The solver: reads a SolverParameter, builds its nets, and trains (Caffe: solver.cpp).

    with Solver(source.param, source=source, listeners=[log]) as solver:
        solver.restore("lenet_iter_5000.solverstate")      # optional
        solver.solve()

With several ranks every rank makes one and calls the same methods in the same order; rank 0 alone reads and
writes snapshots. The solver prints nothing: what happens, it tells its listeners (`events`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from mgcaffe.comm import Communicator, SingleCommunicator
from mgcaffe.engine import Net
from mgcaffe.solvers import building, resuming, snapshot, testing
from mgcaffe.solvers.averaging import GradientAveraging
from mgcaffe.solvers.checks import check_fields
from mgcaffe.solvers.events import (
    Displayed,
    Event,
    LearningRate,
    OutputValue,
    Restored,
    SolverListener,
    Started,
    Tested,
    Testing,
    Warned,
    WeightsCopied,
)
from mgcaffe.solvers.files import probe_writable
from mgcaffe.solvers.meter import Meter
from mgcaffe.solvers.nets import NetReader
from mgcaffe.solvers.policies import LearningRatePolicy
from mgcaffe.solvers.ranks import Ranks
from mgcaffe.solvers.smoothing import SmoothedLoss
from mgcaffe.solvers.source import locate
from mgcaffe.solvers.state import Progress, SavedState, read_state
from mgcaffe.solvers.training import Trainer
from mgcaffe.solvers.updates import Updater


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
        param: Any,
        *,
        source: Any = None,
        communicator: Communicator | None = None,
        listeners: Iterable[SolverListener] = (),
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
            self._emit(Warned(text))
        self._policy = LearningRatePolicy(param, source)
        for field in self._policy.unset_fields():
            self._emit(Warned(f"lr_policy '{self._policy.name}' reads {field}, which is not set and counts as 0"))
        self._prefix = self._check_prefix()
        self._smoothed = SmoothedLoss(param.average_loss)
        self._window_is_restored = False
        self._stop_wanted = self._snapshot_wanted = self._stopped = False
        self._last_state: str | None = None
        self._scores: tuple[tuple[OutputValue, ...], ...] = ()
        with ExitStack() as opened:
            self._build_nets(dtype, device, strict, keep_blobs, opened)
            self._build_trainer(schedule, opened)
            self.load_weights(param.weights if weights is None else weights)
            self._opened = opened.pop_all()

    def _check_prefix(self) -> Path | None:
        """Finds out now, not after hours of training, that snapshots cannot be written."""
        if not (self.param.snapshot or self.param.snapshot_after_train):
            return None
        prefix = snapshot.snapshot_prefix(self.param, self._source)
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
        building.agree_on_shapes(self.net, self._communicator)

    def _build_trainer(self, schedule: str | None, opened: ExitStack) -> None:
        param = self.param
        self._updater = Updater(param, self.net.arena, self._source)
        for text in self._updater.warnings:
            self._emit(Warned(text))
        self._averaging = GradientAveraging(self.net, self._communicator, param, schedule, self._emit)
        opened.callback(self._averaging.close)
        self._trainer = Trainer(self.net, self._updater, self._averaging, param, self.ranks.rank)
        self._meter = Meter(self._emit, self._trainer.records_per_iteration * self.ranks.size)

    # -- training ----------------------------------------------------------------------------------------

    def solve(self) -> None:
        """Trains up to max_iter, or until a stop is requested, with the tests and snapshots on the way."""
        self._meter.start_run()
        self._emit(
            Started(
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
        self.step(self.param.max_iter - self.iteration)
        if self.param.snapshot_after_train and not self._is_due(self.param.snapshot):
            self.snapshot()
        if not self._stopped:
            if self._is_due(self.param.display):
                self._display_last()
            if self._is_due(self.param.test_interval):
                self.test_all()
        self._meter.finish(self.iteration, self._stopped, self._last_state, self._scores)

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
            self._iterate()

    @property
    def rate(self) -> float:
        """The learning rate of the next update."""
        return self._policy.rate(self.iteration)

    def apply_update(self) -> None:
        """Makes one update by the gradients that lie in the net (Caffe: ApplyUpdate)."""
        self._trainer.apply_update(self.rate, self.iteration)
        self.iteration += 1

    def add_callback(self, on_start: Callable[[], None], on_gradients_ready: Callable[[], None]) -> None:
        """Has functions called before each iteration's gradients are computed, and before they are applied."""
        self._on_start.append(on_start)
        self._on_gradients_ready.append(on_gradients_ready)

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
        gradients = self._trainer.compute_gradients(self.seed, self.iteration)
        # One small exchange carries all that the ranks have to agree on.
        wishes = [float(self._stop_wanted), float(self._snapshot_wanted)]
        loss, stop, snap = self.ranks.mean([gradients.loss, *wishes]).tolist()
        smoothed = self._smoothed.add(loss)
        self._meter.communicated(gradients.comm)
        rate = self._policy.rate(self.iteration)
        if self._is_due(self.param.display):
            numbers = self.ranks.mean(testing.output_numbers(self.net))
            outputs = testing.label_outputs(self.net, numbers)
            self._meter.display(self.iteration, smoothed, self.param.display, outputs)
            self._emit(LearningRate(self.iteration, rate))
        for callback in self._on_gradients_ready:
            callback()
        self._trainer.apply_update(rate, self.iteration)
        self._meter.iteration_done(
            self.iteration,
            loss,
            smoothed,
            rate,
            seconds=time.perf_counter() - began,
            data_wait_s=gradients.data_wait_s,
            comm=gradients.comm,
        )
        self.iteration += 1
        if snap or self._is_due(self.param.snapshot):
            self._snapshot_wanted = False
            self.snapshot()
        if stop:
            self._stop_wanted, self._stopped = False, True
        self._averaging.after_update(self.iteration)

    def _is_due(self, interval: int) -> bool:
        return interval > 0 and self.iteration % interval == 0

    def _display_last(self) -> None:
        """Shows the loss after the last update."""
        loss = self._trainer.loss_without_trace(self.seed, self.iteration)
        window = SmoothedLoss(self.param.average_loss)
        window.restart(self._smoothed.losses)
        smoothed = window.add(float(self.ranks.mean([loss])[0]))
        self._emit(Displayed(self.iteration, smoothed, None, None, None, ()))

    # -- testing -----------------------------------------------------------------------------------------

    def test_all(self) -> None:
        """Tests every test net on all ranks."""
        self.ranks.average_statistics(self.net)
        self._scores = tuple(self._test(index) for index in range(len(self.test_nets)))

    def _test(self, index: int) -> tuple[OutputValue, ...]:
        self._emit(Testing(self.iteration, index))
        began = time.perf_counter()
        result = testing.run_test(
            self.test_nets[index], self.ranks, self.seed, self.iteration, self.param.test_compute_loss
        )
        seconds = time.perf_counter() - began
        self._emit(Tested(self.iteration, index, result.scores, result.loss, seconds))
        return result.scores

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
            SnapshotError: a file cannot be written.
        """
        prefix = self._prefix or snapshot.snapshot_prefix(self.param, self._source)
        self.ranks.average_statistics(self.net)
        hdf5 = snapshot.is_hdf5(self.param)
        self._last_state = str(snapshot.state_path(prefix, self.iteration, hdf5=hdf5))
        if self.ranks.rank == 0:
            diffs = self.param.snapshot_diff
            progress = self._progress()
            snapshot.write_snapshot(
                prefix, self.net, self._updater, progress, hdf5=hdf5, with_diffs=diffs, emit=self._emit
            )

    def restore(self, path: str) -> None:
        """Goes on from a solverstate as if training had never stopped; from Caffe's as far as it says.

        Raises:
            SnapshotError: (exit code 65) on rank 0, which alone reads it: no solverstate, or not of this
                solver.
        """
        progress: Progress | None = None
        if self.ranks.rank == 0:
            progress = self._read_snapshot(path)
        progress = self._communicator.broadcast_object(progress)
        assert progress is not None
        self._share_beginning(self._updater.histories)
        self._continue_from(progress)

    def _read_snapshot(self, path: str) -> Progress:
        state: SavedState = read_state(path)
        state.check_solver_type(self._updater.name)
        weights = state.find_weights()
        self._copy_weights(self.net, str(weights), "train")
        state.copy_history(self.net.arena, self.net.parameters, self._updater.histories)
        self._emit(Restored(state.progress.iteration, str(path), str(weights)))
        return state.progress

    def _progress(self) -> Progress:
        plan = self._averaging.plan
        return Progress(
            iteration=self.iteration,
            current_step=self._policy.current_step(self.iteration),
            seed=self.seed,
            world_size=self.ranks.size,
            records=resuming.data_positions(self.net, self.test_nets),
            smoothed_losses=self._smoothed.losses,
            solver_type=self._updater.name,
            plan=plan.to_json() if plan is not None and self._averaging.measured else "",
        )

    def _continue_from(self, progress: Progress) -> None:
        self.iteration = progress.iteration
        nets = [self.net, *self.test_nets]
        if progress.seed is not None:
            self.seed = progress.seed
            resuming.take_seed(nets, self.seed, self.param, self._emit)
        self._smoothed.restart(progress.smoothed_losses)
        self._window_is_restored = True
        resuming.warn_of_ranks(progress.world_size, self.ranks.size, self._emit)
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
        self._emit(WeightsCopied(file, name, net.copy_trained_layers(file)))

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

    def _emit(self, event: Event) -> None:
        for listener in self.listeners:
            listener.on_event(event)
