"""Find the plans that the schedule `auto` tries: what each schedule makes of the measurements, without duplicates.

The exact plan is exact for the costs and times that were measured, and these are not quite those that will be
met: gradients come later while communication slows the backward pass, and an all-reduce beside it costs more.
So `optimal` also plans with the start-up cost multiplied by powers of two, which gives plans with more and with
fewer groups. All plans are then predicted with the costs as measured (`prediction.py`), and those that could be
best are tried.

Where that is allowed, the last groups travel beside the next forward pass (`forward_overlap.py`). The best merging for
the end of the backward pass need not be the best then: groups have to be so small that those of the lowest layers do
not wait behind them. So buckets of several sizes are planned, too.
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

MAX_CANDIDATES = 10
"""How many plans are tried that wait for all groups, at most."""
MAX_OVERLAPPED = 3
"""How many plans that overlap the forward pass are tried beside them, at most."""
MAX_FURTHER = 2
"""How many plans are added after the first stage of trials, at most."""
_MAX_VARIANTS = 3
"""How many plans of `optimal` are tried on one channel, at most."""
_MAX_PREDICTED_RATIO = 1.3
"""The predicted time relative to the best one's beyond which a plan is not tried."""
_SAME_PREDICTION = 1e-3
"""The relative difference up to which two predictions count as equal."""
_MIN_EXPOSED_SHARE = 0.05
"""The share of the best plan's time that must be waiting, for plans that overlap the forward pass to be tried: their
turns take twice as long."""
_BUCKET_COUNTS = (4, 8, 16, 32)
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
        """Return the candidate with a new prediction, on the channel with its way of waiting."""
        channel = next(channel for channel in channels if channel.blocking == self.plan.blocking)
        return replace(self, plan=predict(self.plan, timings, channel))


class ScaledStartUp:
    """A cost whose start-up part is multiplied by a factor."""

    def __init__(self, cost: Cost, factor: float) -> None:
        self._cost = cost
        self._added = (factor - 1) * cost.affine()[0]

    def __call__(self, size: float) -> float:
        """Return the seconds for `size` bytes."""
        return float(self.many(numpy.array([size], dtype=float))[0])

    def many(self, sizes: numpy.ndarray) -> numpy.ndarray:
        """Return the seconds for a one-dimensional array of sizes in bytes."""
        # A measured curve may lie below the fitted start-up at small sizes; a cost stays above zero.
        seconds = numpy.maximum(self._cost.many(sizes) + self._added, 1e-9)
        seconds[sizes <= 0] = 0.0
        return seconds

    def affine(self) -> tuple[float, float, float]:
        """Return (a, b, R squared)."""
        a, b, fit = self._cost.affine()
        return a + self._added, b, fit

    def to_json(self) -> dict[str, object]:
        """Return the cost without the factor."""
        return self._cost.to_json()


def find_candidates(
    segments: Sequence[Segment],
    timings: Timings,
    channels: Iterable[Channel],
    *,
    element_bytes: int,
    bucket_bytes: float = DEFAULT_BUCKET_BYTES,
    overlap: Overlap = Overlap.NEVER,
    scale_start_up: bool = True,
) -> list[Candidate]:
    """Return the plans worth trying, the best predicted first.

    Of equal plans one is kept. On every channel the single all-reduce is among them, since its time depends least on
    what is hard to measure. There are at most `MAX_CANDIDATES`, and with `Overlap.TRY` `MAX_OVERLAPPED` more.

    Args:
        segments: the layers with gradients.
        timings: of the passes.
        channels: the ways of communicating.
        element_bytes: the size of a gradient.
        bucket_bytes: the bucket of the schedule `threshold`.
        overlap: whether plans overlap the forward pass.
        scale_start_up: whether `optimal` also plans with multiples of the start-up cost.
    """
    unlike: list[Candidate] = []
    for candidate in _ranked(segments, timings, channels, element_bytes, bucket_bytes, overlap, scale_start_up):
        if not any(_are_alike(candidate, other) for other in unlike):
            unlike.append(candidate)
    if overlap is not Overlap.TRY:
        return _choose(unlike)
    chosen = _choose([candidate for candidate in unlike if not candidate.plan.overlaps_forward])
    if chosen and chosen[0].plan.exposed >= _MIN_EXPOSED_SHARE * chosen[0].predicted:
        chosen += _spread([candidate for candidate in unlike if candidate.plan.overlaps_forward], MAX_OVERLAPPED)
    return sorted(chosen, key=_rank)


def find_further(
    known: Sequence[Candidate],
    segments: Sequence[Segment],
    timings: Timings,
    channels: Iterable[Channel],
    *,
    element_bytes: int,
    bucket_bytes: float = DEFAULT_BUCKET_BYTES,
    overlap: Overlap = Overlap.NEVER,
    scale_start_up: bool = True,
) -> list[Candidate]:
    """Return at most `MAX_FURTHER` plans that are predicted to be faster than all known ones, and unlike them.

    Args:
        known: plans that were tried, predicted for these channels.
        segments, timings, channels, element_bytes, bucket_bytes, overlap, scale_start_up: as for `find_candidates`.
    """
    best = min(candidate.predicted for candidate in known)
    ranked = _ranked(segments, timings, channels, element_bytes, bucket_bytes, overlap, scale_start_up)
    better = [candidate for candidate in ranked if candidate.predicted < best]
    return _spread([each for each in better if not any(_are_alike(each, other) for other in known)], MAX_FURTHER)


def _ranked(
    segments: Sequence[Segment],
    timings: Timings,
    channels: Iterable[Channel],
    element_bytes: int,
    bucket_bytes: float,
    overlap: Overlap,
    scale_start_up: bool,
) -> list[Candidate]:
    """Return what all schedules make of all channels, the best predicted first."""
    found: list[Candidate] = []
    for channel in channels:
        plain = _on_channel(segments, timings, channel, element_bytes, bucket_bytes, scale_start_up)
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
    for count in _BUCKET_COUNTS:
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
    segments: Sequence[Segment],
    timings: Timings,
    channel: Channel,
    element_bytes: int,
    bucket_bytes: float,
    scale_start_up: bool,
) -> list[Candidate]:
    """Return what all schedules make of one channel, without overlap; of equal plans the first."""
    ready = ready_times(timings.backward_times)
    costs: dict[str, tuple[str, Cost]] = {
        name: (name, channel.beside) for name in ("single", "wfbp", "threshold", "mgwfbp")
    }
    for exponent in sorted(START_UP_EXPONENTS, key=abs) if scale_start_up else (0,):
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
    """Return those that could be fastest, with a place for every schedule rather than for each variant of one."""
    if not candidates:
        return []
    limit = _MAX_PREDICTED_RATIO * candidates[0].predicted
    chosen = [each for each in candidates if len(each.plan.groups) == 1]
    variants: Counter[bool] = Counter()
    for candidate in candidates:
        if len(candidate.plan.groups) == 1 or candidate.predicted > limit or len(chosen) == MAX_CANDIDATES:
            continue
        is_variant = candidate.label.startswith("optimal")
        if is_variant and variants[candidate.plan.blocking] == _MAX_VARIANTS:
            continue
        variants[candidate.plan.blocking] += is_variant
        chosen.append(candidate)
    return sorted(chosen, key=_rank)
