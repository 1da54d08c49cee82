"""One of a trainer's further workers: iterations on a net of its own, whose weights are those of all workers."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from mgcaffe.comm import SingleCommunicator
from mgcaffe.engine import Net
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.events import Emit
from mgcaffe.solvers.exchange.averaging import GradientAveraging
from mgcaffe.solvers.exchange.gradient_buffer import GradientBuffer
from mgcaffe.solvers.loss_scale import LossScale
from mgcaffe.solvers.monitor.finite_check import FiniteCheck
from mgcaffe.solvers.trainer import Trainer
from mgcaffe.solvers.training_iteration import TrainingIteration
from mgcaffe.solvers.update.kept_products import KeptProducts
from mgcaffe.solvers.update.updater import Updater


class Worker:
    """Worker 1, 2, ... of a trainer.

    Args:
        number: its number among the trainer's workers.
        workers: how many the trainer has.
        rank: the trainer's number among all.
        net: its net, made beside that of worker 0.
        updater: worker 0's.
        param: the SolverParameter message.
        rate: gives the learning rate of an iteration.
        lock: is held during an update.
        emit: takes the events, on the worker's thread.

    Attributes:
        iteration: how many iterations it has completed.
        records: how many records its updates so far came from.
    """

    def __init__(
        self,
        number: int,
        workers: int,
        rank: int,
        net: Net,
        updater: Updater,
        param: SolverParameter,
        rate: Callable[[int], float],
        lock: AbstractContextManager[object],
        emit: Emit,
    ) -> None:
        self.number = number
        self.net = net
        self.iteration = 0
        self.records = 0
        self._rate = rate
        self._lock = lock
        alone = SingleCommunicator()
        updater = updater.beside(net.arena)
        products = KeptProducts(net, param, updater, alone, emit)
        averaging = GradientAveraging(GradientBuffer.of_net(net, alone.size), alone, param, None, emit)
        if net.table_look_ups is not None:
            updater.update_elsewhere = net.table_look_ups.update
        scale = LossScale(net.context.precision)
        self._trainer = Trainer(net, updater, averaging, products, param, rank * workers + number, scale)
        self._finite = FiniteCheck(net, alone, param, emit, rank, scale, number, workers)
        averaging.on_ready = self._finite.gradients_ready

    def iterate(self, seed: int) -> None:
        """Compute gradients, and make one update by them.

        Args:
            seed: of the run's random numbers.

        Raises:
            NotFiniteError: the loss or a gradient is not finite, as `nan_effect` says.
            Exception: whatever a layer raises.
        """
        began = time.perf_counter()
        self._finite.begin()
        gradients = self._trainer.compute_gradients(seed, self.iteration)
        iteration = TrainingIteration(self.iteration, began, gradients.loss, gradients.data_wait_s)
        iteration.loss, iteration.probe = gradients.loss, self._finite.probe()
        self._trainer.wait()
        if not self._finite.refuses(iteration, seed, _no_snapshot):
            with self._lock:
                self._trainer.apply_update(self._rate(self.iteration), self.iteration)
            self.records += self._trainer.records_per_iteration
        self._finite.end()
        self.iteration += 1


def _no_snapshot() -> None:
    """Stand in for the snapshot of `nan_effect: SNAPSHOT`, which several workers refuse."""
    raise AssertionError("several workers do not take a snapshot where a loss is not finite")
