"""Find the plans that the schedule `auto` tries: what each schedule makes of the measurements, without duplicates.

The exact plan is exact for the costs and times that were measured, and these are not quite those that will be
met: gradients come later while communication slows the backward pass, and an all-reduce beside it costs more. So
all plans are predicted with the contention measured (`prediction.py`), and those that could be best are tried. What
each group takes from cores that compute, and what several groups on the link at a time take from each other, is not
predicted at all: so a few buckets of equal size are among them.

Where that is allowed, the last groups travel beside the next forward pass (`forward_overlap.py`). The best merging for
the end of the backward pass need not be the best then: groups have to be so small that those of the lowest layers do
not wait behind them. So buckets of several sizes are planned, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mgcaffe.comm.planning.forward_overlap import Overlap, predict
from mgcaffe.comm.planning.plan import Plan, Segment, ready_times
from mgcaffe.comm.planning.prediction import Channel
from mgcaffe.comm.planning.schedules import DEFAULT_BUCKET_BYTES, make_plan
from mgcaffe.comm.planning.timings import Timings

MAX_OVERLAPPED = 3
"""How many plans that overlap the forward pass are tried beside them, at most."""
MAX_FURTHER = 2
"""How many plans are added after the first stage of trials, at most."""
_MAX_PREDICTED_RATIO = 1.3
"""The predicted time relative to the best one's beyond which a plan is not tried."""
_SAME_PREDICTION = 1e-3
"""The relative difference up to which two predictions count as equal."""
_MIN_EXPOSED_SHARE = 0.05
"""The share of the best plan's time that must be waiting, for plans that overlap the forward pass to be tried: their
turns take twice as long."""
_BUCKET_COUNTS = (4, 8)
"""Into how many buckets of the same size gradients are merged."""
_OVERLAPPED_BUCKET_COUNTS = (4, 8, 16, 32)
"""The same for plans that overlap the forward pass."""


@dataclass(frozen=True)
class Candidate:
    """A plan to try.

    Attributes:
        label: the schedule, or what else merged the groups.
        plan: with its predicted times.
    """

    label: str
    plan: Plan

    @property
    def predicted(self) -> float:
        """Seconds of the backward pass, and of what is waited for communication then or in the next forward pass."""
        return self.plan.backward_end + self.plan.exposed

    def on(self, channels: Sequence[Channel], timings: Timings) -> Candidate:
        """Return the candidate with a new prediction, on the channel with its way of waiting."""
        channel = next(channel for channel in channels if channel.blocking == self.plan.blocking)
        return replace(self, plan=predict(self.plan, timings, channel))


@dataclass(frozen=True)
class PlanningInput:
    """What plans are made from.

    Attributes:
        segments: the layers with gradients.
        timings: of the passes.
        channels: the ways of communicating.
        element_bytes: the size of a gradient.
        bucket_bytes: the bucket of the schedule `threshold`.
        overlap: whether plans overlap the forward pass.
    """

    segments: Sequence[Segment]
    timings: Timings
    channels: Sequence[Channel]
    element_bytes: int
    bucket_bytes: float = DEFAULT_BUCKET_BYTES
    overlap: Overlap = Overlap.NEVER


def find_candidates(given: PlanningInput) -> list[Candidate]:
    """Return the plans worth trying, the best predicted first.

    Of equal plans one is kept. On every channel the single all-reduce is among them, since its time depends least on
    what is hard to measure. With `Overlap.TRY` there are at most `MAX_OVERLAPPED` that overlap the forward pass.
    """
    plain, overlapped = _all_plans(given)
    if given.overlap is Overlap.ALWAYS:
        return _choose(_unlike(overlapped))
    chosen = _choose(_unlike(plain))
    if overlapped and chosen[0].plan.exposed >= _MIN_EXPOSED_SHARE * chosen[0].predicted:
        chosen += _spread(_unlike(overlapped), MAX_OVERLAPPED)
    return sorted(chosen, key=_rank)


def find_further(known: Sequence[Candidate], given: PlanningInput) -> list[Candidate]:
    """Return at most `MAX_FURTHER` plans that are predicted to be faster than all known ones, and unlike them.

    Args:
        known: plans that were tried, predicted for what was measured.
        given: what was measured since.
    """
    best = min(candidate.predicted for candidate in known)
    plain, overlapped = _all_plans(given)
    allowed = overlapped if given.overlap is Overlap.ALWAYS else plain + overlapped
    better = sorted((candidate for candidate in allowed if candidate.predicted < best), key=_rank)
    return _spread([each for each in better if not any(_are_alike(each, other) for other in known)], MAX_FURTHER)


def _all_plans(given: PlanningInput) -> tuple[list[Candidate], list[Candidate]]:
    """Return what all schedules make of all channels: without overlap, and with it where that is allowed."""
    plain: list[Candidate] = []
    overlapped: list[Candidate] = []
    for channel in given.channels:
        planner = _Planner(given.segments, given.timings, channel, given.element_bytes)
        scheduled = planner.all_schedules(given.bucket_bytes)
        plain += scheduled
        if given.overlap is not Overlap.NEVER:
            overlapped += planner.overlapped(scheduled)
    return plain, overlapped


@dataclass(frozen=True)
class _Planner:
    """Makes plans for one channel."""

    segments: Sequence[Segment]
    timings: Timings
    channel: Channel
    element_bytes: int

    def all_schedules(self, bucket_bytes: float) -> list[Candidate]:
        """Return what all schedules make of the channel, and buckets, without overlap; of equal plans the first."""
        candidates: dict[str, Candidate] = {}
        for schedule in ("single", "wfbp", "threshold", "mgwfbp", "optimal"):
            plan = predict(self._plan(schedule, bucket_bytes), self.timings, self.channel)
            candidates.setdefault(plan.hash, Candidate(schedule, plan))
        for count in _BUCKET_COUNTS:
            label, plan = self._buckets(count)
            candidates.setdefault(plan.hash, Candidate(label, predict(plan, self.timings, self.channel)))
        return list(candidates.values())

    def overlapped(self, plain: Sequence[Candidate]) -> list[Candidate]:
        """Return candidates whose last groups travel beside the next forward pass."""
        plans = {candidate.plan.hash: (candidate.label, candidate.plan) for candidate in plain}
        for count in _OVERLAPPED_BUCKET_COUNTS:
            label, plan = self._buckets(count)
            plans.setdefault(plan.hash, (label, plan))
        candidates = []
        for name, plan in plans.values():
            label = f"{name}, overlap_forward"
            plan = replace(plan, schedule=label, overlaps_forward=True)
            candidates.append(Candidate(label, predict(plan, self.timings, self.channel)))
        return candidates

    def _buckets(self, count: int) -> tuple[str, Plan]:
        """Return a plan of about so many groups of the same size, and its label."""
        size = sum(segment.count for segment in self.segments) * self.element_bytes / count
        plan = replace(self._plan("threshold", size), blocking=self.channel.blocking)
        return f"buckets of {size / 2**20:.2g} MiB", plan

    def _plan(self, schedule: str, bucket_bytes: float) -> Plan:
        return make_plan(
            schedule,
            self.segments,
            ready_times(self.timings.backward_times),
            self.channel.beside,
            element_bytes=self.element_bytes,
            bucket_bytes=bucket_bytes,
        )


def _unlike(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return them without those that are like a better one, the best predicted first."""
    unlike: list[Candidate] = []
    for candidate in sorted(candidates, key=_rank):
        if not any(_are_alike(candidate, other) for other in unlike):
            unlike.append(candidate)
    return unlike


def _rank(candidate: Candidate) -> tuple[float, int]:
    return candidate.predicted, len(candidate.plan.groups)


def _are_alike(one: Candidate, other: Candidate) -> bool:
    """Return whether two plans differ by no more than some layers, which is not worth two trials."""
    close = abs(one.predicted - other.predicted) <= _SAME_PREDICTION * other.predicted
    kinds = [(len(each.plan.groups), each.plan.blocking, each.plan.overlaps_forward) for each in (one, other)]
    return close and kinds[0] == kinds[1]


def _spread(candidates: Sequence[Candidate], maximum: int) -> list[Candidate]:
    """Return the best predicted ones, but none with about as many groups as a better one.

    What a prediction gets wrong of small groups, or of large ones, it gets wrong of all plans that have them.
    """
    chosen: list[Candidate] = []
    for candidate in candidates:
        if len(chosen) == maximum or candidate.predicted > _MAX_PREDICTED_RATIO * candidates[0].predicted:
            break
        if not any(_have_alike_groups(candidate.plan, other.plan) for other in chosen):
            chosen.append(candidate)
    return chosen


def _have_alike_groups(one: Plan, other: Plan) -> bool:
    few, many = sorted((len(one.groups), len(other.groups)))
    return many < 2 * few and (one.blocking, one.overlaps_forward) == (other.blocking, other.overlaps_forward)


def _choose(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return those that could be fastest, and the single all-reduces."""
    limit = _MAX_PREDICTED_RATIO * candidates[0].predicted
    return [each for each in candidates if len(each.plan.groups) == 1 or each.predicted <= limit]
