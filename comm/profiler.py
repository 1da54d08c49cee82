"""What planning needs of the computation: the layers' backward times, and what communication beside them costs.

Both are measured on iterations of the training itself. In every other one all gradients are reduced after the
backward pass, so that nothing disturbs it; in those between, a plan of a few groups is reduced beside it, in each
way of waiting in turn. Of each quantity the median counts, and of the ranks the slowest.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from mgcaffe.comm.calibration import WireCosts, agree_least_times, agree_times
from mgcaffe.comm.candidates import Timings
from mgcaffe.comm.comm_report import CommReport
from mgcaffe.comm.communicator import Communicator
from mgcaffe.comm.cost import AllReduceCost
from mgcaffe.comm.plan import Plan
from mgcaffe.comm.prediction import LEAST_SPEED, Channel

_LEAST_ITERATIONS = 4
_MOST_STRETCH = 20.0


@dataclass(frozen=True)
class _Iteration:
    laps: Sequence[float]
    report: CommReport

    @property
    def backward(self) -> float:
        return sum(self.laps[:-1])

    def hidden(self, on_host: bool) -> float:
        """The seconds of communication beside the backward pass."""
        if not on_host:
            return max(0.0, self.report.total_s - self.laps[-1])
        end = self.report.backward_end
        return sum(max(0.0, min(group.end, end) - group.start) for group in self.report.groups)

    def beside(self) -> list[float]:
        """The seconds of every group that was reduced beside the backward pass, infinity for the others."""
        end = self.report.backward_end
        return [group.end - group.start if group.end <= end else math.inf for group in self.report.groups]


class Profiler:
    """Says which plan the next iteration has, takes down how it went, and evaluates.

    Args:
        iterations: how many there are in all. The first is not counted, unless there are fewer than four; then
            nothing is measured of contention.
        alone: the plan with a single group.
        probes: plans with several groups, one for each way of waiting, to measure contention with.
    """

    def __init__(self, iterations: int, alone: Plan, probes: Sequence[Plan]) -> None:
        self._plans = [alone, *(probe for probe in probes if len(probe.groups) > 1)]
        self._order = [0] * iterations
        if iterations >= _LEAST_ITERATIONS and len(self._plans) > 1:
            for turn, place in enumerate(range(1, iterations, 2)):
                self._order[place] = 1 + turn % (len(self._plans) - 1)
        self._taken: list[list[_Iteration]] = [[] for _ in self._plans]
        self._done = 0

    @property
    def current(self) -> Plan:
        """The plan of the next iteration."""
        return self._plans[self._order[self._done]]

    @property
    def is_undisturbed(self) -> bool:
        """Whether nothing may be reduced in the next iteration before its backward pass has ended."""
        return self._order[self._done] == 0

    @property
    def is_over(self) -> bool:
        """Whether there is no next iteration."""
        return self._done == len(self._order)

    def record(self, laps: Sequence[float], report: CommReport) -> None:
        """Note an iteration.

        Args:
            laps: seconds: the backward times of the layers with gradients, downwards; what backward does below
                them; the rest of the communication, with the updates that are made meanwhile.
            report: its communication.
        """
        if self._done > 0 or len(self._order) < _LEAST_ITERATIONS:
            self._taken[self._order[self._done]].append(_Iteration(laps, report))
        self._done += 1

    def timings(self, communicator: Communicator) -> Timings:
        """Return the slowest rank's times of the undisturbed backward pass; a collective call."""
        laps = zip(*(iteration.laps[:-1] for iteration in self._taken[0]), strict=True)
        *downwards, tail = agree_times(communicator, [statistics.median(values) for values in laps])
        return Timings(downwards[::-1], tail)

    def channels(self, communicator: Communicator, wire: WireCosts, on_host: bool) -> list[Channel]:
        """Return each way of waiting with the contention that was measured; a collective call.

        Args:
            communicator: the ranks.
            wire: the costs measured without computation.
            on_host: whether the gradients lie in the host's memory. Elsewhere the program runs ahead of the
                computation, and how long a group took beside it cannot be told from its record.
        """
        ways = sorted({plan.blocking for plan in self._plans})
        return [self._channel(communicator, wire, blocking, on_host) for blocking in ways]

    def _channel(self, communicator: Communicator, wire: WireCosts, blocking: bool, on_host: bool) -> Channel:
        probed = self._probed(blocking)
        beside, alone = wire.beside(blocking), wire.alone(blocking)
        if not probed:
            return Channel(blocking, beside, alone)
        undisturbed = statistics.median(iteration.backward for iteration in self._taken[0])
        disturbed = statistics.median(iteration.backward for iteration in probed)
        # A GPU's groups, whose record begins while it still computes, seem to hide something when nothing is hidden.
        hidden = statistics.median(iteration.hidden(on_host) for iteration in probed)
        hidden -= statistics.median(iteration.hidden(on_host) for iteration in self._taken[0])
        undisturbed, disturbed, hidden = agree_times(communicator, [undisturbed, disturbed, hidden])
        slowdown = (disturbed - undisturbed) / hidden if hidden > 0 else 0.0
        if on_host:
            beside = _stretched(beside, self._stretch(communicator, probed, beside))
        return Channel(blocking, beside, alone, min(max(0.0, slowdown), 1.0 - LEAST_SPEED))

    def _probed(self, blocking: bool) -> list[_Iteration]:
        pairs = zip(self._plans[1:], self._taken[1:], strict=True)
        return [each for plan, taken in pairs for each in taken if plan.blocking == blocking]

    def _stretch(self, communicator: Communicator, probed: Sequence[_Iteration], beside: AllReduceCost) -> float:
        """Return how many times as long all-reduces take beside computation."""
        medians = [statistics.median(values) for values in zip(*(each.beside() for each in probed), strict=True)]
        # A rank that comes early waits for the others inside its call; the shortest time is the wire's own.
        least = agree_least_times(communicator, medians)
        sizes = [group.bytes for group in probed[0].report.groups]
        pairs = [(seconds, size) for seconds, size in zip(least, sizes, strict=True) if math.isfinite(seconds)]
        if not pairs:
            return 1.0
        ratio = sum(seconds for seconds, _ in pairs) / sum(beside(size) for _, size in pairs)
        return min(max(1.0, ratio), _MOST_STRETCH)


def _stretched(cost: AllReduceCost, factor: float) -> AllReduceCost:
    return AllReduceCost([(size, factor * seconds) for size, seconds in cost.points])
