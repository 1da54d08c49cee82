"""The plans that the schedule `auto` tries: what each schedule makes of the measurements, without duplicates.

The exact plan is exact for the costs and times that were measured, and these are not quite those that will be
met: gradients come later while communication slows the backward pass, and an all-reduce beside it costs more.
So `optimal` also plans with the start-up cost multiplied by powers of two, which gives plans with more and with
fewer groups. All plans are then predicted with the costs as measured (`prediction.py`), and those that could be
best are tried.

Where it may, the last groups travel beside the next forward pass (`forward_overlap.py`). What is best merged for the
end of the backward pass need not be so then: groups have to be small enough for the lowest layers' not to wait behind
them. So buckets of several sizes are planned, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy

from mgcaffe.comm.planning.cost import Cost
from mgcaffe.comm.planning.forward_overlap import Overlap, predict
from mgcaffe.comm.planning.plan import Plan, Segment, ready_times
from mgcaffe.comm.planning.prediction import Channel
from mgcaffe.comm.planning.schedules import DEFAULT_BUCKET_BYTES, make_plan
from mgcaffe.comm.planning.timings import Timings

START_UP_EXPONENTS = range(-4, 8)
"""The powers of two by which `optimal` multiplies the start-up cost."""

MOST_CANDIDATES = 10
MOST_OVERLAPPED = 3
"""Of plans that overlap the forward pass, beside the other candidates."""
MOST_MORE = 2
_MOST_VARIANTS = 3
_WORTH_TRYING = 1.3
_SAME_PREDICTION = 1e-3
_LEAST_EXPOSED = 0.05
"""The part of the best plan's time that must be waiting, for plans that overlap the forward pass to be tried: their
turns take twice as long."""
_BUCKETS = (4, 8, 16, 32)
"""Into how many buckets of the same size gradients are merged for them."""


@dataclass(frozen=True)
class Candidate:
    """A plan to try.

    Attributes:
        label: the schedule, with the factor of its start-up cost if that is not 1.
        plan: with its predicted times.
    """

    label: str
    plan: Plan

    @property
    def predicted(self) -> float:
        """Seconds of the backward pass, and of what is waited for communication then or in the next forward pass."""
        return self.plan.backward_end + self.plan.exposed

    def on(self, channels: Sequence[Channel], timings: Timings) -> Candidate:
        """Return it predicted anew, on that channel whose way of waiting it has."""
        channel = next(channel for channel in channels if channel.blocking == self.plan.blocking)
        return replace(self, plan=predict(self.plan, timings, channel))


class ScaledStartUp:
    """A cost whose start-up part is multiplied."""

    def __init__(self, cost: Cost, factor: float) -> None:
        self._cost = cost
        self._added = (factor - 1) * cost.affine()[0]

    def __call__(self, size: float) -> float:
        """Return the seconds for `size` bytes."""
        return float(self.many(numpy.array([size], dtype=float))[0])

    def many(self, sizes: numpy.ndarray) -> numpy.ndarray:
        """Return the seconds for a one-dimensional array of sizes in bytes."""
        # A measured curve may lie below the fitted start-up at small sizes; a cost stays above nothing.
        seconds = numpy.maximum(self._cost.many(sizes) + self._added, 1e-9)
        seconds[sizes <= 0] = 0.0
        return seconds

    def affine(self) -> tuple[float, float, float]:
        """Return (a, b, R squared)."""
        a, b, fit = self._cost.affine()
        return a + self._added, b, fit

    def to_json(self) -> dict[str, object]:
        """Return the cost underneath."""
        return self._cost.to_json()


def find_candidates(
    segments: Sequence[Segment],
    timings: Timings,
    channels: Iterable[Channel],
    *,
    element_bytes: int,
    bucket_bytes: float = DEFAULT_BUCKET_BYTES,
    overlap: Overlap = Overlap.NEVER,
) -> list[Candidate]:
    """Return the plans worth trying, by what is predicted of them.

    Of equal plans one is kept. On every channel the single all-reduce is among them, since what it takes
    depends least on what is hard to measure. There are at most `MOST_CANDIDATES`, and with `Overlap.TRY`
    `MOST_OVERLAPPED` more.
    """
    unlike: list[Candidate] = []
    for candidate in _ranked(segments, timings, channels, element_bytes, bucket_bytes, overlap):
        if not any(_are_alike(candidate, other) for other in unlike):
            unlike.append(candidate)
    if overlap is not Overlap.TRY:
        return _choose(unlike)
    chosen = _choose([candidate for candidate in unlike if not candidate.plan.overlaps_forward])
    if chosen and chosen[0].plan.exposed >= _LEAST_EXPOSED * chosen[0].predicted:
        chosen += _spread([candidate for candidate in unlike if candidate.plan.overlaps_forward], MOST_OVERLAPPED)
    return sorted(chosen, key=_rank)


def find_more(
    known: Sequence[Candidate],
    segments: Sequence[Segment],
    timings: Timings,
    channels: Iterable[Channel],
    *,
    element_bytes: int,
    bucket_bytes: float = DEFAULT_BUCKET_BYTES,
    overlap: Overlap = Overlap.NEVER,
) -> list[Candidate]:
    """Return at most `MOST_MORE` plans that are predicted to be faster than all known ones, and unlike them.

    Args:
        known: plans that were tried, predicted for these channels.
        segments, timings, channels, element_bytes, bucket_bytes, overlap: as for `find_candidates`.
    """
    best = min(candidate.predicted for candidate in known)
    ranked = _ranked(segments, timings, channels, element_bytes, bucket_bytes, overlap)
    better = [candidate for candidate in ranked if candidate.predicted < best]
    return _spread([each for each in better if not any(_are_alike(each, other) for other in known)], MOST_MORE)


def _ranked(
    segments: Sequence[Segment],
    timings: Timings,
    channels: Iterable[Channel],
    element_bytes: int,
    bucket_bytes: float,
    overlap: Overlap,
) -> list[Candidate]:
    """Return what all schedules make of all channels, the best predicted first."""
    found: list[Candidate] = []
    for channel in channels:
        plain = _on_channel(segments, timings, channel, element_bytes, bucket_bytes)
        if overlap is not Overlap.ALWAYS:
            found += plain
        if overlap is not Overlap.NEVER:
            found += _overlapped(plain, segments, timings, channel, element_bytes)
    return sorted(found, key=_rank)


def _rank(candidate: Candidate) -> tuple[float, int]:
    return candidate.predicted, len(candidate.plan.groups)


def _overlapped(
    plain: Sequence[Candidate], segments: Sequence[Segment], timings: Timings, channel: Channel, element_bytes: int
) -> list[Candidate]:
    """Return candidates whose last groups travel beside the next forward pass."""
    ready = ready_times(timings.backward_times)
    total = sum(segment.count for segment in segments) * element_bytes
    plans = {candidate.plan.hash: (candidate.label, candidate.plan) for candidate in plain}
    for count in _BUCKETS:
        plan = make_plan(
            "threshold", segments, ready, channel.beside, element_bytes=element_bytes, bucket_bytes=total / count
        )
        plan = replace(plan, blocking=channel.blocking)
        plans.setdefault(plan.hash, (f"buckets of {total / count / 2**20:.2g} MiB", plan))
    candidates = []
    for name, plan in plans.values():
        label = f"{name}, overlap_forward"
        plan = replace(plan, schedule=label, overlaps_forward=True)
        candidates.append(Candidate(label, predict(plan, timings, channel)))
    return candidates


def _on_channel(
    segments: Sequence[Segment], timings: Timings, channel: Channel, element_bytes: int, bucket_bytes: float
) -> list[Candidate]:
    ready = ready_times(timings.backward_times)
    costs: dict[str, tuple[str, Cost]] = {
        name: (name, channel.beside) for name in ("single", "wfbp", "threshold", "mgwfbp")
    }
    for exponent in sorted(START_UP_EXPONENTS, key=abs):
        label = "optimal" if exponent == 0 else f"optimal, a x {2.0**exponent:g}"
        costs[label] = ("optimal", ScaledStartUp(channel.beside, 2.0**exponent))
    candidates: dict[str, Candidate] = {}
    for label, (schedule, cost) in costs.items():
        plan = make_plan(
            schedule, segments, ready, cost, element_bytes=element_bytes, bucket_bytes=bucket_bytes
        )  # fmt: skip
        plan = predict(plan, timings, channel)
        candidates.setdefault(plan.hash, Candidate(label, replace(plan, schedule=label)))
    return list(candidates.values())


def _are_alike(one: Candidate, other: Candidate) -> bool:
    """Two plans that differ by a layer here or there are not worth two trials."""
    close = abs(one.predicted - other.predicted) <= _SAME_PREDICTION * other.predicted
    kinds = [(len(each.plan.groups), each.plan.blocking, each.plan.overlaps_forward) for each in (one, other)]
    return close and kinds[0] == kinds[1]


def _spread(candidates: Sequence[Candidate], most: int) -> list[Candidate]:
    """Leave the best predicted ones, but none with about as many groups as a better one.

    What a prediction gets wrong of small groups, or of large ones, it gets wrong of all plans that have them.
    """
    chosen: list[Candidate] = []
    for candidate in candidates:
        if len(chosen) == most or candidate.predicted > _WORTH_TRYING * candidates[0].predicted:
            break
        if not any(_have_alike_groups(candidate.plan, other.plan) for other in chosen):
            chosen.append(candidate)
    return chosen


def _have_alike_groups(one: Plan, other: Plan) -> bool:
    few, many = sorted((len(one.groups), len(other.groups)))
    return many < 2 * few and (one.blocking, one.overlaps_forward) == (other.blocking, other.overlaps_forward)


def _choose(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Leave those that could be fastest, with a place for every schedule rather than for each variant of one."""
    if not candidates:
        return []
    limit = _WORTH_TRYING * candidates[0].predicted
    chosen = [each for each in candidates if len(each.plan.groups) == 1]
    variants: Counter[bool] = Counter()
    for candidate in candidates:
        if len(candidate.plan.groups) == 1 or candidate.predicted > limit or len(chosen) == MOST_CANDIDATES:
            continue
        is_variant = candidate.label.startswith("optimal")
        if is_variant and variants[candidate.plan.blocking] == _MOST_VARIANTS:
            continue
        variants[candidate.plan.blocking] += is_variant
        chosen.append(candidate)
    return sorted(chosen, key=_rank)
