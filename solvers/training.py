"""One training iteration: micro-batches forward and backward, means over the ranks, one update.

Caffe: Solver::Step and SGDSolver::ApplyUpdate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mgcaffe.comm import CommReport
from mgcaffe.engine import Net
from mgcaffe.solvers.averaging import GradientAveraging
from mgcaffe.solvers.ranks import changed_by_forward
from mgcaffe.solvers.updates import Updater, clip_factor


@dataclass(frozen=True)
class Pass:
    """The gradients' half of an iteration.

    Attributes:
        loss: this rank's mean over the micro-batches.
        data_wait_s: time spent waiting for data.
        comm: the exchange of the gradients.
    """

    loss: float
    data_wait_s: float
    comm: CommReport


class Trainer:
    """Computes gradients and applies them; keeps no count of iterations.

    Args:
        net: the training net.
        updater: the update rule with its histories.
        averaging: the exchange of gradients.
        param: the SolverParameter message.
        rank: this rank's number; each rank draws its own random numbers.
    """

    def __init__(self, net: Net, updater: Updater, averaging: GradientAveraging, param: Any, rank: int) -> None:
        self.net = net
        self.updater = updater
        self.averaging = averaging
        self._iter_size: int = param.iter_size
        self._clip_gradients: float = param.clip_gradients
        self._rank = rank

    @property
    def records_per_iteration(self) -> int:
        """Records that one rank reads in an iteration, 0 if no data layer reads any."""
        return self._iter_size * max((layer.batch_size for layer in self.net.data_layers), default=0)

    def compute_gradients(self, seed: int, iteration: int) -> Pass:
        """Leaves the sum over the micro-batches, averaged over the ranks, in the arena.

        The net's random stream starts anew from (seed, rank, iteration, micro-batch) each time, so that
        nothing random has to be stored in a snapshot.
        """
        waited = self._data_wait()
        self.net.clear_param_diffs()
        loss = 0.0
        for micro_batch in range(self._iter_size):
            self.net.reseed(seed, self._rank, iteration, micro_batch)
            loss += self.net.forward()
            if micro_batch < self._iter_size - 1:
                self.net.backward()
                continue
            self.averaging.begin()
            self.net.backward(self.averaging.layer_done)
        comm = self.averaging.wait()
        return Pass(loss / self._iter_size, self._data_wait() - waited, comm)

    def loss_without_trace(self, seed: int, iteration: int) -> float:
        """The loss of this rank on the batch that comes next, which stays the next one."""
        statistics = [(values, values.clone()) for values in changed_by_forward(self.net)]
        positions = [(layer, layer.position()) for layer in self.net.data_layers]
        self.net.reseed(seed, self._rank, iteration, 0)
        loss = self.net.forward()
        for values, before in statistics:
            values.copy_(before)
        for layer, position in positions:
            layer.seek(position)
        return loss

    def apply_update(self, rate: float, iteration: int) -> None:
        """Clips the summed gradients, divides them by iter_size and updates the weights, in Caffe's order."""
        scale = clip_factor(self.net.arena, self._clip_gradients) / self._iter_size
        self.updater.apply(rate, iteration, scale)

    def _data_wait(self) -> float:
        return sum(layer.wait_s for layer in self.net.data_layers)
