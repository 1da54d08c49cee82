"""What all-reduces and contention come to in training itself, seen while plans are measured and tried there.

Planning starts from costs that were measured while nothing else ran (`calibration.py`), and not at all sizes. In
training, groups come one after the other, on links that are not idle, from ranks that are not quite level, beside a
backward pass that wants the same cores. So every iteration of the search is taken down, group by group; the cost curves
are moved to what was seen, and the slowdown of the backward pass is taken from the same iterations.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy

from mgcaffe.comm.exchange.comm_report import CommReport
from mgcaffe.comm.planning.cost import AllReduceCost, Cost
from mgcaffe.comm.planning.plan import Plan
from mgcaffe.comm.planning.prediction import MIN_RELATIVE_SPEED, Channel
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.tuning.calibration import agree_least_times, agree_times

_LEAST_FACTOR = 0.5
"""By which a measured curve is multiplied at least: where small all-reduces take longer in training, that is a delay,
and does not make the link faster for large ones."""
_MOST_FACTOR = 2.0
"""The same at most, where sizes of one octave cannot tell a factor from a delay."""
_MOST_RATIO = 4.0
"""By which a curve is multiplied outside of the sizes that were seen, beyond its delay and its factor."""
_NEARLY_ALL = 0.9
"""Of a group's time, for which it has to run on one side of the backward pass's end to count there."""
_LEAST_HIDDEN = 0.02
"""Of the backward pass: with less communication beside it, its slowdown is noise."""


_Key = tuple[int, bool, str]
"""Calibration (0) or trials (1), whether by blocking calls, and the plan's hash."""


@dataclass(frozen=True)
class _Seen:
    """One iteration, in seconds: the backward pass, communication beside it, and every group's all-reduce.

    A group is `beside` if it ran beside the backward pass for nearly all of its time, `after` if it ran after it for
    as much; infinity otherwise.
    """

    backward: float
    hidden: float
    beside: Sequence[float]
    after: Sequence[float]


class Observations:
    """What one rank sees of the plans that are measured and tried; all ranks look at the same ones.

    Args:
        undisturbed: the seconds of the backward pass without communication, the same from which plans are predicted:
            what else is slower in training must not be counted twice.
    """

    def __init__(self, undisturbed: float) -> None:
        self._undisturbed = [undisturbed]
        self._sizes: dict[_Key, list[int]] = {}
        self._seen: dict[_Key, list[_Seen]] = defaultdict(list)

    def begin_trials(self) -> None:
        """Compare what is added from now on with undisturbed passes of the trials' own (`set_undisturbed`)."""
        self._undisturbed.append(self._undisturbed[-1])

    def set_undisturbed(self, seconds: float) -> None:
        """Take the seconds of the backward pass without communication, as seen since `begin_trials`."""
        self._undisturbed[-1] = seconds

    def add(self, plan: Plan, backward: float, report: CommReport) -> None:
        """Take down an iteration whose backward pass took so many seconds."""
        key = (len(self._undisturbed) - 1, plan.blocking, plan.hash)
        end = report.backward_end
        # The order in which groups were sent depends on times that the hash leaves out.
        groups = sorted(report.groups, key=lambda group: group.number)
        self._sizes[key] = [group.bytes for group in groups]
        spans = [(group.end - group.start, max(0.0, min(group.end, end) - group.start)) for group in groups]
        self._seen[key].append(
            _Seen(
                backward,
                sum(hidden for _, hidden in spans),
                [seconds if hidden >= _NEARLY_ALL * seconds else math.inf for seconds, hidden in spans],
                [seconds if seconds - hidden >= _NEARLY_ALL * seconds else math.inf for seconds, hidden in spans],
            )
        )

    def refine(self, communicator: Communicator, channels: Sequence[Channel]) -> list[Channel]:
        """Return the channels with costs and slowdown as they were seen; a collective call, equal on all ranks."""
        return [self._refined(communicator, channel) for channel in channels]

    def _refined(self, communicator: Communicator, channel: Channel) -> Channel:
        keys = [key for key in self._seen if key[1] == channel.blocking]
        if not keys:
            return channel
        sizes = [size for key in keys for size in self._sizes[key]]
        beside = [seconds for key in keys for seconds in _medians([seen.beside for seen in self._seen[key]])]
        after = [seconds for key in keys for seconds in _medians([seen.after for seen in self._seen[key]])]
        return replace(
            channel,
            beside=corrected(channel.beside, _on_all(communicator, sizes, beside)),
            alone=corrected(channel.alone, _on_all(communicator, sizes, after)),
            slowdown=self._slowdown(communicator, keys, channel.slowdown),
        )

    def _slowdown(self, communicator: Communicator, keys: Sequence[_Key], before: float) -> float:
        backward = [statistics.median(seen.backward for seen in self._seen[key]) for key in keys]
        hidden = [statistics.median(seen.hidden for seen in self._seen[key]) for key in keys]
        backward, hidden = agree_times(communicator, backward), agree_times(communicator, hidden)
        if sum(hidden) < _LEAST_HIDDEN * sum(backward):
            return before
        added = sum(seconds - self._undisturbed[key[0]] for key, seconds in zip(keys, backward, strict=True))
        slowdown = added / sum(hidden)
        return min(max(0.0, slowdown), 1.0 - MIN_RELATIVE_SPEED)


def _medians(iterations: Sequence[Sequence[float]]) -> list[float]:
    """Return each group's median; infinity where it mostly was of another kind."""
    return [statistics.median_high(values) for values in zip(*iterations, strict=True)]


def _on_all(communicator: Communicator, sizes: Sequence[int], seconds: Sequence[float]) -> list[tuple[int, float]]:
    """Return (bytes, seconds) of the groups that were of a kind on every rank, with the shortest time of any.

    A rank that comes early waits for the others inside its call; the shortest time is the wire's own.
    """
    longest, shortest = agree_times(communicator, seconds), agree_least_times(communicator, seconds)
    pairs = zip(sizes, longest, shortest, strict=True)
    return [(size, least) for size, most, least in pairs if math.isfinite(most) and least > 0]


def corrected(cost: Cost, seen: Sequence[tuple[int, float]]) -> Cost:
    """Return a measured curve moved to what was seen.

    First as a whole, by a delay for each all-reduce and a factor that come closest to what was seen; then by what is
    left, octave by octave, interpolated between octaves. Outside of them the last octave's ratio holds, within limits.
    All-reduces of less than half the smallest that was seen are slower in the same proportion as that half, at most:
    what delays large ones (ranks that are not level, cores that are busy) need not delay each small one by as much.

    Args:
        cost: the curve; a cost of another kind is returned as it is.
        seen: (bytes, seconds) of all-reduces.
    """
    if not seen or not isinstance(cost, AllReduceCost):
        return cost
    sizes, seconds = (numpy.array(values, dtype=float) for values in zip(*seen, strict=True))
    octaves = numpy.round(numpy.log2(sizes)).astype(int)
    places = sorted(set(octaves.tolist()))
    delay, factor = _fitted(cost.many(sizes), seconds, places)
    expected = delay + factor * cost.many(sizes)
    ratios = [seconds[octaves == place].sum() / expected[octaves == place].sum() for place in places]
    at = numpy.array(sorted({*cost.sizes.tolist(), float(sizes.max())}))
    ends = numpy.clip([ratios[0], ratios[-1]], 1 / _MOST_RATIO, _MOST_RATIO)
    left = numpy.interp(numpy.log2(at), places, ratios, left=ends[0], right=ends[1])
    moved = left * (delay + factor * cost.many(at))
    half = sizes.min(keepdims=True) / 2
    slower = numpy.interp(half, at, moved) / cost.many(half)
    moved = numpy.where(at < half, numpy.minimum(moved, slower * cost.many(at)), moved)
    return AllReduceCost(list(zip(at.tolist(), moved.tolist(), strict=True)))


def _fitted(expected: numpy.ndarray, seconds: numpy.ndarray, octaves: Sequence[int]) -> tuple[float, float]:
    """Return (delay, factor) with the least squares of (delay + factor * expected) / seconds - 1.

    The delay is at least 0, the factor at least `_LEAST_FACTOR`. Sizes of one octave cannot tell the two apart: there
    the factor is at most `_MOST_FACTOR`, and the rest is a delay.
    """
    inverse, share = 1 / seconds, expected / seconds
    if len(octaves) > 1:
        columns = numpy.stack([inverse, share], axis=1)
        delay, factor = numpy.linalg.lstsq(columns, numpy.ones(len(seconds)), rcond=None)[0]
        if delay >= 0 and factor >= _LEAST_FACTOR:
            return float(delay), float(factor)
        factor = _LEAST_FACTOR if factor < _LEAST_FACTOR else share.sum() / (share**2).sum()
    else:
        factor = min(share.sum() / (share**2).sum(), _MOST_FACTOR)
    factor = max(factor, _LEAST_FACTOR)
    delay = (inverse * (1 - factor * share)).sum() / (inverse**2).sum()
    return max(0.0, float(delay)), float(factor)
