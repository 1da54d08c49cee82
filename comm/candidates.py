"""The plans that the schedule `auto` tries: what each schedule makes of the measurements, without duplicates.

The exact plan is exact for the costs and times that were measured, and these are not quite those that will be
met: gradients come later while communication slows the backward pass, and an all-reduce beside it costs more.
So `optimal` also plans with the start-up cost multiplied by powers of two, which gives plans with more and with
fewer groups. All plans are then predicted with the costs as measured (`prediction.py`), and those that could be
best are tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy

from mgcaffe.comm.cost import Cost
from mgcaffe.comm.plan import Plan, Segment, ready_times
from mgcaffe.comm.planners import DEFAULT_BUCKET_BYTES, make_plan
from mgcaffe.comm.prediction import Channel, predict_plan

START_UP_EXPONENTS = range(-4, 8)
"""The powers of two by which `optimal` multiplies the start-up cost."""

MOST_CANDIDATES = 10
MOST_MORE = 2
_MOST_VARIANTS = 3
_WORTH_TRYING = 1.3
_SAME_PREDICTION = 1e-3


@dataclass(frozen=True)
class Timings:
    """What was measured of the backward pass, on the slowest rank.

    Attributes:
        backward_times: of each layer with gradients, in seconds, by layer.
        tail: what is left below the lowest of them, in seconds.
    """

    backward_times: Sequence[float]
    tail: float = 0.0

    @property
    def total(self) -> float:
        """The backward pass without any communication beside it, in seconds."""
        return sum(self.backward_times) + self.tail


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
        """Seconds from the start of the backward pass until all gradients are means."""
        return max(self.plan.end, self.plan.backward_end)

    def on(self, channels: Sequence[Channel], timings: Timings) -> Candidate:
        """Return it predicted anew, on that channel whose way of waiting it has."""
        channel = next(channel for channel in channels if channel.blocking == self.plan.blocking)
        return replace(self, plan=predict_plan(self.plan, timings.backward_times, timings.tail, channel))


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
) -> list[Candidate]:
    """Return the plans worth trying, at most `MOST_CANDIDATES`, by what is predicted of them.

    Of equal plans one is kept. On every channel the single all-reduce is among them, since what it takes
    depends least on what is hard to measure.
    """
    unlike: list[Candidate] = []
    for candidate in _ranked(segments, timings, channels, element_bytes, bucket_bytes):
        if not any(_are_alike(candidate, other) for other in unlike):
            unlike.append(candidate)
    return _choose(unlike)


def find_more(
    known: Sequence[Candidate],
    segments: Sequence[Segment],
    timings: Timings,
    channels: Iterable[Channel],
    *,
    element_bytes: int,
    bucket_bytes: float = DEFAULT_BUCKET_BYTES,
) -> list[Candidate]:
    """Return at most `MOST_MORE` plans that are predicted to be faster than all known ones, and unlike them.

    Args:
        known: plans that were tried, predicted for these channels.
        segments, timings, channels, element_bytes, bucket_bytes: as for `find_candidates`.
    """
    best = min(candidate.predicted for candidate in known)
    more: list[Candidate] = []
    for candidate in _ranked(segments, timings, channels, element_bytes, bucket_bytes):
        if candidate.predicted >= best or len(more) == MOST_MORE:
            break
        if not any(_are_alike(candidate, other) for other in [*known, *more]):
            more.append(candidate)
    return more


def _ranked(
    segments: Sequence[Segment],
    timings: Timings,
    channels: Iterable[Channel],
    element_bytes: int,
    bucket_bytes: float,
) -> list[Candidate]:
    """Return what all schedules make of all channels, the best predicted first."""
    found = [
        candidate
        for channel in channels
        for candidate in _on_channel(segments, timings, channel, element_bytes, bucket_bytes)
    ]
    return sorted(found, key=lambda each: (each.predicted, len(each.plan.groups)))


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
        plan = predict_plan(plan, timings.backward_times, timings.tail, channel)
        candidates.setdefault(plan.hash, Candidate(label, replace(plan, schedule=label)))
    return list(candidates.values())


def _are_alike(one: Candidate, other: Candidate) -> bool:
    """Two plans that differ by a layer here or there are not worth two trials."""
    close = abs(one.predicted - other.predicted) <= _SAME_PREDICTION * other.predicted
    same_kind = len(one.plan.groups) == len(other.plan.groups) and one.plan.blocking == other.plan.blocking
    return close and same_kind


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
    return sorted(chosen, key=lambda each: (each.predicted, len(each.plan.groups)))
