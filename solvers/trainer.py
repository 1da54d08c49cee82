"""One training iteration: micro-batches forward and backward, means over the ranks, one update.

Caffe: Solver::Step and SGDSolver::ApplyUpdate.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from mgcaffe.comm import CommReport
from mgcaffe.comm.exchange.comm_report import OnGroup
from mgcaffe.comm.replicas.figures import SyncFigures
from mgcaffe.engine import Net
from mgcaffe.engine.capture.replayed_pass import ReplayedPass
from mgcaffe.engine.data.stages import sum_stages
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers import carried_state
from mgcaffe.solvers.exchange.averaging import GradientAveraging
from mgcaffe.solvers.exchange.gradient_buffer import frozen_gradients, want_frozen_gradients
from mgcaffe.solvers.exchange.iteration_clock import IterationClock
from mgcaffe.solvers.exchange.pending_update import PendingUpdate
from mgcaffe.solvers.exchange.ranks import changed_by_forward
from mgcaffe.solvers.loss_scale import LossScale
from mgcaffe.solvers.update.kept_products import KeptProducts
from mgcaffe.solvers.update.updater import Updater, clip_factor


@dataclass(frozen=True)
class Pass:
    """The passes of an iteration.

    Attributes:
        loss: this rank's mean over the micro-batches.
        data_wait_s: time spent waiting for data.
        data_work_s: what making the batches took in their threads meanwhile, by stage.
    """

    loss: float
    data_wait_s: float
    data_work_s: Mapping[str, float]


class IterationObserver(Protocol):
    """Takes the times of communication and updates (`tools/timeline/recorder.py`)."""

    def communicated(self, comm: CommReport) -> None:
        """Take the report of an exchange."""

    def agreed(self, start: float, end: float) -> None:
        """Take the clock before and after the ranks agreed on the loss, once their backward passes had ended."""

    def updated(self, start: float, end: float, offset: int, count: int) -> None:
        """Take the clock before and after an update by elements `offset` to `offset + count` of the gradients.

        Of one rank alone those of gradients that are kept as products count as well.
        """

    def synchronized(self, start: float, end: float, figures: SyncFigures) -> None:
        """Take the clock before and after a round that brought replicas together, and the figures after it.

        In the background it is called on another thread than the others.
        """


class Trainer:
    """Computes gradients and applies them; keeps no count of iterations.

    Three calls make an iteration; between the first two the ranks may agree on the loss, while gradients are on their
    way:

        compute_gradients       forward, backward; hands the gradients to the exchange
        take_gradients          waits for the means; updates each merged group as soon as its means are there,
                                where nothing needs all gradients together (clipping does)
        apply_update            updates all weights where take_gradients has not

    By a plan that overlaps the forward pass, take_gradients does not wait at all: the next forward pass completes the
    update layer by layer (`exchange/pending_update.py`), or `complete_update` before weights are read.

    All ways give the same bits. The computing thread makes the updates: until backward ends everything
    waits for it, so those of the groups that have come meanwhile are made then, while the last groups are reduced.

    Args:
        net: the training net.
        updater: the update rule with its histories.
        averaging: the exchange of gradients.
        products: the gradients that are kept as products.
        param: the SolverParameter message.
        rank: this rank's number; each rank draws its own random numbers.
        loss_scale: the factor on the loss whose gradients are computed; updates divide them by it.

    Attributes:
        observer: is called when updates and communication happen; None: there is none.
    """

    def __init__(
        self,
        net: Net,
        updater: Updater,
        averaging: GradientAveraging,
        products: KeptProducts,
        param: SolverParameter,
        rank: int,
        loss_scale: LossScale,
    ) -> None:
        self.net = net
        self.updater = updater
        self.averaging = averaging
        self._products = products
        self.observer: IterationObserver | None = None
        self._iter_size: int = param.iter_size
        self._clip_gradients: float = param.clip_gradients
        want_frozen_gradients(param, net)
        self._frozen = frozen_gradients(param, net)
        self._rank = rank
        self._loss_scale = loss_scale
        self._scale = 1.0  # of the gradients that lie in the net
        self._segment_of = {layer: segment for segment, (_, layer, _, _) in enumerate(net.arena.segments())}
        self._overlap = PendingUpdate(net, averaging)
        self._pass = ReplayedPass(net)
        self._clock = IterationClock()
        self._earlier: CommReport | None = None
        self._waited: CommReport | None = None
        self._passes_ended = 0.0
        self._data_work = self._data_work_so_far()

    @property
    def records_per_iteration(self) -> int:
        """Records that one rank reads in an iteration, 0 if no data layer reads any."""
        return self._iter_size * max((layer.batch_size for layer in self.net.data_layers), default=0)

    def compute_gradients(self, seed: int, iteration: int, *, together: bool = False) -> Pass:
        """Sum up the gradients of the micro-batches in the arena and begin to average them over the ranks.

        The net's random stream starts anew from (seed, rank, iteration, micro-batch) each time, so that
        nothing random has to be stored in a snapshot.

        Args:
            seed: of the run's random numbers.
            iteration: updates done before this one.
            together: as for `take_gradients`; otherwise one rank alone may keep gradients as products.
        """
        self._waited = None
        waited = self._data_wait()
        self._clock = self._overlap.begin_iteration(self._data_wait)
        self.net.clear_param_diffs()
        self._scale = self._loss_scale.value
        loss = 0.0
        for micro_batch in range(self._iter_size):
            self.net.reseed(seed, self._rank, iteration, micro_batch)
            loss += self._pass.forward(self._scale)
            if micro_batch == 0:
                # Every parameter is up to date now; backward is about to write over the gradients.
                self._earlier = self._observed(self._overlap.complete())
                self._clock.first_forward = self._clock.now()
            if micro_batch < self._iter_size - 1:
                self._pass.backward()
        self._clock.forward = self._clock.now()
        self.averaging.begin()
        with self._products.kept(together=together):
            self._pass.backward(self._layer_done)
        self.averaging.backward_done()
        self._passes_ended = time.perf_counter()
        return Pass(loss / self._iter_size, self._data_wait() - waited, self._new_data_work())

    def wait(self) -> CommReport:
        """Return once all gradients are means over the ranks; `take_gradients` then updates none of them."""
        if self._waited is None:
            self._waited = self.averaging.wait()
            self._observed(self._waited)
        return self._waited

    def take_gradients(self, rate: float, iteration: int, *, together: bool = False) -> tuple[CommReport, bool]:
        """Wait for the gradients' means, and update the weights group by group where nothing needs all of them first.

        Args:
            rate: the learning rate.
            iteration: updates done before this one.
            together: whether something else needs all gradients before the first weight changes.

        Returns:
            The communication that ended in this iteration, and whether the update is made, or left to the
            next forward pass; if not, it is left to `apply_update`.
        """
        earlier, self._earlier = self._earlier, None
        self._clock.agreement = time.perf_counter() - self._passes_ended
        if self.observer is not None:
            self.observer.agreed(self._passes_ended, time.perf_counter())
        # One rank has nothing to wait for, and updates everything at once.
        if self._waited is not None or self.averaging.is_alone or together or self._clip_gradients >= 0:
            report = self.wait()
            if together:
                self._products.complete()
            return _together(earlier, report), False
        factor = self._take_factor()
        update = self._update_of(rate, iteration, factor)
        self.updater.apply_to_tables(rate, iteration, factor)
        if self.averaging.overlaps_forward:
            self._overlap.defer(update)
            report = earlier or CommReport()
        else:
            report = self.averaging.wait(update)
            self._observed(report)
            report = _together(earlier, report)
        self._overlap.end_iteration()
        return report, True

    def complete_update(self) -> CommReport | None:
        """Complete the update that was left to the next forward pass; return None where there was none."""
        return self._observed(self._overlap.complete_early())

    def _observed(self, report: CommReport | None) -> CommReport | None:
        if self.observer is not None and report is not None:
            self.observer.communicated(report)
        return report

    def unscale_gradients(self) -> None:
        """Divide the gradients by the factor on their loss, before they are read."""
        if self._scale == 1:
            return
        look_ups = self.net.table_look_ups
        tables = [table.parameter for table in self.net.arena.tables]
        for values in (
            self.net.arena.diff[: self.net.arena.trainable_diff],
            *(piece.parameter.diff for piece in self.net.arena.apart),
            *self._frozen,
            *(each.values for table in tables for each in table.gradients),
            *(look_ups.gradients() if look_ups is not None else ()),
        ):
            values.mul_(1 / self._scale)
        self._scale = 1.0

    def drop_gradients(self) -> None:
        """Take note that the gradients are not used; the next ones may be computed without the trainer."""
        self._scale = 1.0
        self._products.drop()

    def _take_factor(self) -> float:
        """Return the factor on the gradients for an update, after which they are not used again."""
        scale, self._scale = self._scale, 1.0
        return 1.0 / (self._iter_size * scale)

    def _update_of(self, rate: float, iteration: int, factor: float) -> OnGroup:
        """Return a function that updates a slice of the arena."""

        def update(offset: int, count: int) -> None:
            began = time.perf_counter()
            self.updater.apply_part(offset, count, rate, iteration, factor)
            self._clock.update += time.perf_counter() - began
            if self.observer is not None:
                self.observer.updated(began, time.perf_counter(), offset, count)

        return update

    def loss_without_trace(self, seed: int, iteration: int) -> float:
        """Return the loss of this rank on the batch that comes next, which stays the next one."""
        statistics = [(values, values.clone()) for values in changed_by_forward(self.net)]
        positions = [(layer, layer.position()) for layer in self.net.data_layers]
        self.net.reseed(seed, self._rank, iteration, 0)
        with carried_state.kept(self.net):
            loss = self.net.forward()
        for values, before in statistics:
            values.copy_(before)
        for layer, position in positions:
            layer.seek(position)
        return loss

    def apply_update(self, rate: float, iteration: int) -> None:
        """Clip the summed gradients, divide them by iter_size and update the weights, in Caffe's order.

        The factor on the loss, which they contain, is divided out of them too.
        """
        began = time.perf_counter()
        for gradients in self._frozen:
            self.averaging.average(gradients)
        threshold = self._clip_gradients * self._scale
        factor = clip_factor(self.net.arena, threshold, self._frozen) * self._take_factor()
        self.updater.apply(rate, iteration, factor)
        if self.observer is not None:
            arena = self.net.arena
            count = arena.trainable if self.averaging.is_alone else arena.trainable_diff
            self.observer.updated(began, time.perf_counter(), 0, count)

    def _layer_done(self, layer: int) -> None:
        """Hand over the complete gradients of a layer, if it has any."""
        segment = self._segment_of.get(layer)
        if segment is not None:
            self._products.layer_done(layer)
            self.averaging.gradients_ready(segment)

    def _data_wait(self) -> float:
        return sum(layer.wait_s for layer in self.net.data_layers)

    def _data_work_so_far(self) -> dict[str, float]:
        return sum_stages(*(layer.stages.totals.stages for layer in self.net.data_layers))

    def _new_data_work(self) -> dict[str, float]:
        """Return what batches took that were completed since this was last asked; of the first, those made before."""
        if not self.net.data_layers:
            return {}
        before, self._data_work = self._data_work, self._data_work_so_far()
        return {stage: seconds - before[stage] for stage, seconds in self._data_work.items()}


def _together(earlier: CommReport | None, report: CommReport) -> CommReport:
    """Return a report with the totals of both, where two exchanges ended in one iteration."""
    if earlier is None:
        return report
    return replace(
        report,
        total_s=report.total_s + earlier.total_s,
        exposed_s=report.exposed_s + earlier.exposed_s,
        hidden_s=report.hidden_s + earlier.hidden_s,
    )
