"""Measure what planning needs of the computation: the passes' times, and the cost of communication beside them.

All are measured on iterations of the training itself. In every other one all gradients are reduced after the
backward pass, so that nothing disturbs it; in those between, a plan of a few groups is reduced beside it, in each
way of waiting in turn. Of each quantity the median counts, and of the ranks the slowest.

A run's first iterations are slower than those that follow: caches and threads are cold, and other processes may start
as well. So the first ones are not counted, and undisturbed passes of the trials later replace those that were seen
here.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mgcaffe.comm.exchange.comm_report import CommReport
from mgcaffe.comm.planning.plan import Plan
from mgcaffe.comm.planning.prediction import MIN_RELATIVE_SPEED, Channel
from mgcaffe.comm.planning.timings import ForwardTimes, IterationTimes, Timings
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.tuning.calibration import agree_least_times, agree_times
from mgcaffe.comm.tuning.observations import Observations
from mgcaffe.comm.tuning.settings import TunerSteps

_MIN_ITERATIONS = 4
"""The fewest iterations that measure contention, or that replace earlier ones."""
_WARM_UP_SHARE = 0.25
"""The share of the iterations, the first ones, that is not counted."""


@dataclass(frozen=True)
class MeasuredIteration:
    """What one rank measured of one iteration.

    Attributes:
        laps: seconds: the backward times of the layers with gradients, downwards; of the backward pass below them; of
            the rest of the communication, with the updates that are made meanwhile.
        report: its communication.
        times: what else was measured of it, if anything was.
    """

    laps: Sequence[float]
    report: CommReport
    times: IterationTimes | None = None

    @property
    def backward(self) -> float:
        """The seconds of the backward pass."""
        return sum(self.laps[:-1])

    @property
    def hidden(self) -> float:
        """The seconds of communication beside the backward pass, on a GPU."""
        return max(0.0, self.report.total_s - self.laps[-1])


class Profiler:
    """Choose the plan of each iteration, record how it went, and evaluate all of them.

    Args:
        iterations: how many there are in all. The first quarter is not counted, unless there are fewer than four; then
            nothing is measured of contention.
        alone: the plan with a single group.
        probes: plans with several groups, one for each way of waiting, to measure contention with.
        warm_up: whether the first quarter is left out.
    """

    def __init__(self, iterations: int, alone: Plan, probes: Sequence[Plan], *, warm_up: bool = True) -> None:
        self._plans = [alone, *(probe for probe in probes if len(probe.groups) > 1)]
        self._order = [0] * iterations
        if iterations >= _MIN_ITERATIONS and len(self._plans) > 1:
            for turn, place in enumerate(range(1, iterations, 2)):
                self._order[place] = 1 + turn % (len(self._plans) - 1)
        self._taken: list[list[MeasuredIteration]] = [[] for _ in self._plans]
        self._tried: list[MeasuredIteration] = []
        self._done = 0
        self._first_counted = int(_WARM_UP_SHARE * iterations) if warm_up else 0

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

    def record(self, iteration: MeasuredIteration) -> None:
        """Record an iteration."""
        if len(self._order) < _MIN_ITERATIONS:
            # The first one counts as well then, and is no measure of what an iteration takes.
            self._taken[0].append(replace(iteration, times=None))
        elif self._done >= self._first_counted:
            self._taken[self._order[self._done]].append(iteration)
        self._done += 1

    def record_trial(self, iteration: MeasuredIteration) -> None:
        """Record an iteration of a trial in which nothing was reduced before the lowest layer's gradient was complete.

        The backward pass below that layer ran beside the all-reduce; its time is that of the calibration.
        """
        self._tried.append(iteration)

    @property
    def _undisturbed(self) -> Sequence[MeasuredIteration]:
        """The latest undisturbed iterations: those of trials, once there are enough of them."""
        return self._tried if len(self._tried) >= _MIN_ITERATIONS else self._taken[0]

    def timings(self, communicator: Communicator) -> Timings:
        """Return the slowest rank's times of the undisturbed passes; a collective call."""
        laps = zip(*(iteration.laps[:-2] for iteration in self._undisturbed), strict=True)
        medians = [statistics.median(values) for values in laps]
        tail = statistics.median(iteration.laps[-2] for iteration in self._taken[0])
        *downwards, tail = agree_times(communicator, [*medians, tail])
        return Timings(downwards[::-1], tail, self._forward_times(communicator))

    def rest_of_iteration(self) -> float:
        """Return the seconds that this rank spends besides its backward pass and waiting for gradients."""
        return statistics.median(
            each.times.total - each.backward - each.report.exposed_s
            for each in self._undisturbed
            if each.times is not None
        )

    def _forward_times(self, communicator: Communicator) -> ForwardTimes | None:
        """Return the slowest rank's times of what an iteration does besides; None where a rank has not taken them."""
        known = [each.times for each in self._undisturbed if each.times is not None]
        (is_known,) = agree_least_times(communicator, [float(0 < len(known) == len(self._undisturbed))])
        if not is_known:
            return None
        first, forward, update, agreement = (
            statistics.median(getattr(each, name) for each in known)
            for name in ("first_forward", "forward", "update", "agreement")
        )
        rest = max(0.0, self.rest_of_iteration() - forward - update)
        needed = [statistics.median(values) for values in zip(*(each.needed for each in known), strict=True)]
        # Ranks that come early wait for the others while they agree; the least time is that of the agreement itself.
        (agreement,) = agree_least_times(communicator, [agreement])
        first, forward, update, rest, *needed = agree_times(communicator, [first, forward, update, rest, *needed])
        return ForwardTimes(needed, first, forward, update, rest, agreement)

    def observations(self, timings: Timings, steps: TunerSteps) -> Observations:
        """Return what the iterations showed of all-reduces and of contention, where gradients lie on the host."""
        seen = Observations(timings.total, steps)
        for plan, taken in zip(self._plans, self._taken, strict=True):
            for iteration in taken:
                seen.add(plan, iteration.backward, iteration.report)
        return seen

    def slowed(self, communicator: Communicator, channel: Channel) -> Channel:
        """Return a channel with the contention on a GPU; a collective call.

        The program runs ahead of the computation, so that a group's record does not show how long it took beside it:
        only how much of all communication was hidden is known.
        """
        pairs = zip(self._plans[1:], self._taken[1:], strict=True)
        probed = [each for plan, taken in pairs for each in taken if plan.blocking == channel.blocking]
        if not probed:
            return channel
        # Groups whose record begins while the GPU computes seem to hide something when nothing is hidden.
        values = [
            statistics.median(each.backward for each in self._taken[0]),
            statistics.median(each.backward for each in probed),
            statistics.median(each.hidden for each in probed)
            - statistics.median(each.hidden for each in self._taken[0]),
        ]
        undisturbed, disturbed, hidden = agree_times(communicator, values)
        slowdown = (disturbed - undisturbed) / hidden if hidden > 0 else 0.0
        return replace(channel, slowdown=min(max(0.0, slowdown), 1.0 - MIN_RELATIVE_SPEED))
