"""What all-reduces and contention cost in training itself, observed while plans are measured and tried.

Planning starts from costs that were measured while nothing else ran (`calibration.py`), and not at all sizes. In
training, groups come one after the other, on links that are not idle, from ranks that are not quite level, beside a
backward pass that needs the same cores. So every iteration of the search is recorded, group by group; the cost curves
are moved to what was seen (`cost_correction.py`), and the slowdown of the backward pass is taken from the same
iterations.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from mgcaffe.comm.exchange.comm_report import CommReport, GroupTimes
from mgcaffe.comm.planning.plan import Plan
from mgcaffe.comm.planning.prediction import MIN_RELATIVE_SPEED, Channel
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.tuning.calibration import agree_least_times, agree_times
from mgcaffe.comm.tuning.cost_correction import corrected_cost
from mgcaffe.comm.tuning.settings import TunerSteps

_NEARLY_ALL = 0.9
"""The part of a group's time that must lie on one side of the backward pass's end for the group to count there."""
_MIN_HIDDEN_SHARE = 0.02
"""Communication beside the backward pass, as a share of it, below which the slowdown would be noise."""


@dataclass
class _Baseline:
    """The calibration, or the trials: `undisturbed` is the seconds of its backward pass without communication."""

    undisturbed: float


@dataclass(frozen=True)
class _ObservedIteration:
    """One iteration, in seconds.

    Attributes:
        backward: the backward pass.
        hidden: all communication that ran beside it.
        beside: the all-reduce of each group that ran beside the backward pass for nearly all of its time; infinity
            for the others, and for groups that shared the link with each other.
        after: the same of each group that ran after it.
    """

    backward: float
    hidden: float
    beside: Sequence[float]
    after: Sequence[float]


@dataclass
class _PlanRecord:
    """All iterations of one plan in one phase; `sizes` are the bytes of its groups."""

    baseline: _Baseline
    blocking: bool
    sizes: list[int]
    iterations: list[_ObservedIteration] = field(default_factory=list)

    def median_backward(self) -> float:
        """Return the median seconds of the backward pass."""
        return statistics.median(iteration.backward for iteration in self.iterations)

    def median_hidden(self) -> float:
        """Return the median seconds of communication beside the backward pass."""
        return statistics.median(iteration.hidden for iteration in self.iterations)

    def medians_beside(self) -> list[float]:
        """Return each group's median seconds beside the backward pass; infinity where it mostly was not there."""
        return _medians_of_columns([iteration.beside for iteration in self.iterations])

    def medians_after(self) -> list[float]:
        """Return each group's median seconds after the backward pass; infinity where it mostly was not there."""
        return _medians_of_columns([iteration.after for iteration in self.iterations])


class Observations:
    """What one rank sees of the plans that are measured and tried; all ranks look at the same plans.

    Args:
        undisturbed: the seconds of the backward pass without communication, the same from which plans are predicted:
            what else is slower in training must not be counted twice.
        steps: whether costs and slowdown follow what was seen.
    """

    def __init__(self, undisturbed: float, steps: TunerSteps | None = None) -> None:
        self._steps = steps or TunerSteps()
        self._baselines = [_Baseline(undisturbed)]
        self._records: dict[tuple[int, str], _PlanRecord] = {}  # by the number of phases so far and the plan's hash

    def begin_trials(self) -> None:
        """Compare what is added from now on with undisturbed passes of the trials' own (`set_undisturbed`)."""
        self._baselines.append(_Baseline(self._baselines[-1].undisturbed))

    def set_undisturbed(self, seconds: float) -> None:
        """Take the seconds of the backward pass without communication, as seen since `begin_trials`."""
        self._baselines[-1].undisturbed = seconds

    def add(self, plan: Plan, backward: float, report: CommReport) -> None:
        """Record an iteration whose backward pass took `backward` seconds."""
        # The order in which groups were sent depends on times that the hash leaves out.
        groups = sorted(report.groups, key=lambda times: times.group)
        key = (len(self._baselines), plan.hash)
        if key not in self._records:
            sizes = [group.bytes for group in groups]
            self._records[key] = _PlanRecord(self._baselines[-1], plan.blocking, sizes)
        self._records[key].iterations.append(_iteration(backward, report, groups))

    def refine(self, communicator: Communicator, channels: Sequence[Channel]) -> list[Channel]:
        """Return the channels with costs and slowdown as they were seen; a collective call, equal on all ranks."""
        return [self._refined(communicator, channel) for channel in channels]

    def _refined(self, communicator: Communicator, channel: Channel) -> Channel:
        records = [record for record in self._records.values() if record.blocking == channel.blocking]
        if not records:
            return channel
        if self._steps.cost_correction:
            sizes = [size for record in records for size in record.sizes]
            beside = [seconds for record in records for seconds in record.medians_beside()]
            after = [seconds for record in records for seconds in record.medians_after()]
            channel = replace(
                channel,
                beside=corrected_cost(channel.beside, _seen_on_all_ranks(communicator, sizes, beside)),
                alone=corrected_cost(channel.alone, _seen_on_all_ranks(communicator, sizes, after)),
            )
        if self._steps.contention:
            channel = replace(channel, slowdown=_slowdown(communicator, records, channel.slowdown))
        return channel


def _iteration(backward: float, report: CommReport, groups: Sequence[GroupTimes]) -> _ObservedIteration:
    """Return what one iteration says, from its groups' times since its beginning, in seconds."""
    lengths = [group.end - group.start for group in groups]
    hidden = [max(0.0, min(group.end, report.backward_end) - group.start) for group in groups]
    if not report.one_by_one:
        unknown = [math.inf] * len(groups)
        return _ObservedIteration(backward, sum(hidden), unknown, unknown)
    pairs = list(zip(lengths, hidden, strict=True))
    return _ObservedIteration(
        backward,
        sum(hidden),
        [length if beside >= _NEARLY_ALL * length else math.inf for length, beside in pairs],
        [length if length - beside >= _NEARLY_ALL * length else math.inf for length, beside in pairs],
    )


def _medians_of_columns(iterations: Sequence[Sequence[float]]) -> list[float]:
    """Return the median of each group over the iterations, the higher of two: infinity if it mostly is infinite."""
    return [statistics.median_high(values) for values in zip(*iterations, strict=True)]


def _seen_on_all_ranks(
    communicator: Communicator, sizes: Sequence[int], seconds: Sequence[float]
) -> list[tuple[int, float]]:
    """Return (bytes, seconds) of the groups that were seen on every rank, with the shortest time of any rank.

    A rank that comes early waits for the others inside its call; the shortest time is that of the communication itself.
    """
    longest, shortest = agree_times(communicator, seconds), agree_least_times(communicator, seconds)
    triples = zip(sizes, longest, shortest, strict=True)
    return [(size, low) for size, high, low in triples if math.isfinite(high) and low > 0]


def _slowdown(communicator: Communicator, records: Sequence[_PlanRecord], before: float) -> float:
    """Return the seconds that each second of hidden communication added to the backward pass; a collective call.

    The slowdown known before is returned where next to nothing was hidden.
    """
    backward = agree_times(communicator, [record.median_backward() for record in records])
    hidden = agree_times(communicator, [record.median_hidden() for record in records])
    if sum(hidden) < _MIN_HIDDEN_SHARE * sum(backward):
        return before
    added = sum(seconds - record.baseline.undisturbed for record, seconds in zip(records, backward, strict=True))
    return min(max(0.0, added / sum(hidden)), 1.0 - MIN_RELATIVE_SPEED)
