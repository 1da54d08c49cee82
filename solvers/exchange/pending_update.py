"""Lets the last gradients of an iteration travel beside the next forward pass, where each layer waits for its own.

    clock = overlap.begin_iteration(data_wait)
    report = overlap.complete()             after the first forward pass, before backward writes over the gradients
    overlap.defer(update)                   instead of waiting for the means
    report = overlap.complete_early()       where weights are read between two iterations

Until then the weights of the groups that are still on their way are those before the update.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mgcaffe.comm import CommReport, Plan
from mgcaffe.comm.exchange.comm_report import OnGroup
from mgcaffe.engine import Net
from mgcaffe.solvers.exchange.averaging import GradientAveraging
from mgcaffe.solvers.exchange.iteration_clock import IterationClock


class PendingUpdate:
    """The update that the next forward pass completes, and the times that predicting such plans rests on.

    Args:
        net: the training net, whose steps wait for their parameters.
        averaging: the exchange of gradients.
    """

    def __init__(self, net: Net, averaging: GradientAveraging) -> None:
        self._net = net
        self._averaging = averaging
        self._needed: dict[int, list[int]] | None = None
        self._is_pending = False
        self._is_timed = False
        self._clock = IterationClock()
        self._waited_between: tuple[Plan | None, float] = None, 0.0

    def begin_iteration(self, data_wait: Callable[[], float]) -> IterationClock:
        """Return the iteration's clock, started; `data_wait` gives the seconds waited for data so far."""
        self._is_timed = self._averaging.wants_times
        if self._is_timed:
            self._register_hook()
        # What was waited for between two iterations counts, unless it was another plan's.
        plan, seconds = self._waited_between
        self._clock = IterationClock(data_wait, seconds if plan is self._averaging.plan_in_use else 0.0)
        self._waited_between = None, 0.0
        return self._clock

    def end_iteration(self) -> None:
        """Hand over the iteration's times, where they are wanted."""
        if self._is_timed:
            self._averaging.iteration_took(self._clock.times(len(self._net.arena.segments())))

    def defer(self, update: OnGroup) -> None:
        """Leave the groups that have not come to the next forward pass, which calls `update` with each."""
        self._register_hook()
        self._is_pending = True
        self._averaging.defer(update)

    def complete(self) -> CommReport | None:
        """Complete the update and return its communication; None where nothing was left."""
        if not self._is_pending:
            return None
        self._is_pending = False
        return self._averaging.finish()

    def complete_early(self) -> CommReport | None:
        """Do as `complete` does, between two iterations: the next one's times contain the waiting."""
        plan, began = self._averaging.plan_in_use, time.perf_counter()
        report = self.complete()
        self._waited_between = plan, self._waited_between[1] + time.perf_counter() - began
        return report

    def _register_hook(self) -> None:
        """Let layers wait for their parameters from the next forward pass on."""
        if self._needed is None:
            self._needed = self._find_needed()
            self._net.before_forward.append(self._await_parameters)

    def _find_needed(self) -> dict[int, list[int]]:
        """Return the segments of the arena whose parameters each step reads, by the number that hooks get."""
        segments = self._net.arena.segments()
        owners = {id(piece.parameter): piece.diff_offset for piece in self._net.arena.slices}
        needed: dict[int, list[int]] = {}
        for step in self._net.steps:
            parameters = [each for member in step.members for each in self._net.layers[member].parameters]
            places = (owners.get(id(each.owner or each)) for each in parameters)
            offsets = [place for place in places if place is not None]  # a frozen table has none
            needed[step.index] = [
                index for index, (_, _, start, count) in enumerate(segments)
                if any(start <= offset < start + count for offset in offsets)
            ]  # fmt: skip
        return needed

    def _await_parameters(self, step: int) -> None:
        assert self._needed is not None
        for segment in self._needed[step]:
            if self._is_timed:
                self._clock.needs(segment)
            if self._is_pending:
                self._averaging.wait_for_segment(segment)
