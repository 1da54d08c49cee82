"""The schedules: pure functions from layer sizes, ready times and the cost of an all-reduce to merged groups.

| schedule    | what it merges                                                                               |
|-------------|----------------------------------------------------------------------------------------------|
| `single`    | everything: one all-reduce after the backward pass                                           |
| `wfbp`      | nothing: one all-reduce a layer, as soon as its gradient is ready (wait-free)                |
| `threshold` | neighbours until a bucket holds `bucket_bytes`, as PyTorch DDP and Horovod do                |
| `mgwfbp`    | the paper's rule: layer l into l-1 while that waits less than the start-up a it saves        |
| `optimal`   | the merging with the earliest end of all, then with the fewest groups (`optimal.py`)         |

All of them assume what the reducer does: one all-reduce at a time, in the order in which the groups become
ready. Layers without elements take no part. Sizes, times and costs may be in any units that fit together.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

import numpy

from mgcaffe.comm.planning.cost import Cost
from mgcaffe.comm.planning.optimal import optimal_ranges
from mgcaffe.comm.planning.plan import Group, Plan, Segment
from mgcaffe.errors import CommError

DEFAULT_BUCKET_BYTES = 25 * 1024 * 1024
"""PyTorch DDP's `bucket_cap_mb`."""


class Schedule(str, Enum):
    """The names of the schedules, for whoever writes them in Python; each equals its string.

    `AUTO` is not planned by this module alone: it tries the best of the others (`comm/tuning`).
    """

    SINGLE = "single"
    WFBP = "wfbp"
    THRESHOLD = "threshold"
    MGWFBP = "mgwfbp"
    OPTIMAL = "optimal"
    AUTO = "auto"

    def __str__(self) -> str:
        return self.value


Ranges = list[tuple[int, int]]
"""(first, last) layer of every group, both included, from the highest layers to the lowest."""


@dataclass(frozen=True)
class Problem:
    """What a schedule decides on; only layers that have elements.

    Attributes:
        sizes: bytes by layer.
        ready: when each layer's gradient is ready, by layer, falling.
        cost: the all-reduce's cost.
        bucket_bytes: for `threshold`.
    """

    sizes: numpy.ndarray
    ready: numpy.ndarray
    cost: Cost
    bucket_bytes: float = DEFAULT_BUCKET_BYTES


def single(problem: Problem) -> Ranges:
    """Merge everything."""
    return [(0, len(problem.sizes) - 1)]


def wfbp(problem: Problem) -> Ranges:
    """Merge nothing."""
    return [(layer, layer) for layer in reversed(range(len(problem.sizes)))]


def threshold(problem: Problem) -> Ranges:
    """Fill buckets downwards; one is complete as soon as it holds `bucket_bytes` or more."""
    ranges: Ranges = []
    last, held = len(problem.sizes) - 1, 0.0
    for layer in reversed(range(len(problem.sizes))):
        held += problem.sizes[layer]
        if held >= problem.bucket_bytes or layer == 0:
            ranges.append((layer, last))
            last, held = layer - 1, 0.0
    return ranges


def mgwfbp(problem: Problem) -> Ranges:
    """Apply the paper's rule from the highest layer down (INFOCOM 2019, Algorithm 1).

    Layer l is merged into l-1 iff ready(l-1) - tau_c(l) < a, where tau_c(l) is when the all-reduce of l, with
    all that has been merged into it, would start. A merged layer costs nothing of its own, so it starts its
    successor no later than it would have started itself. `a` and b are those of the straight line fitted to
    the cost.
    """
    a, b, _ = problem.cost.affine()
    ranges: Ranges = []
    last = len(problem.sizes) - 1
    pending, channel_free = 0.0, 0.0
    for layer in range(last, 0, -1):
        pending += problem.sizes[layer]
        start = max(channel_free, problem.ready[layer])
        if problem.ready[layer - 1] - start < a:
            channel_free = start
        else:
            ranges.append((layer, last))
            channel_free = start + a + b * pending
            last, pending = layer - 1, 0.0
    return [*ranges, (0, last)]


def optimal(problem: Problem) -> Ranges:
    """Minimise the end of the last all-reduce exactly, for any non-decreasing cost; then the groups."""
    return optimal_ranges(problem.sizes, problem.ready, problem.cost)


SCHEDULES: dict[str, Callable[[Problem], Ranges]] = {
    Schedule.SINGLE.value: single,
    Schedule.WFBP.value: wfbp,
    Schedule.THRESHOLD.value: threshold,
    Schedule.MGWFBP.value: mgwfbp,
    Schedule.OPTIMAL.value: optimal,
}


def make_plan(
    schedule: str,
    layers: Sequence[int | Segment],
    ready_times: Sequence[float],
    cost: Cost,
    *,
    element_bytes: int,
    bucket_bytes: float = DEFAULT_BUCKET_BYTES,
    backward_end: float | None = None,
) -> Plan:
    """Plan the all-reduces of one iteration.

    Args:
        schedule: a name in `SCHEDULES`.
        layers: every layer's place in the flat gradient buffer, or its number of elements where the buffer
            has no gaps, from the first layer to the last.
        ready_times: when each layer's gradient is ready, in seconds from the start of the backward pass
            (`plan.ready_times`); a lower layer is never ready before a higher one.
        cost: what an all-reduce of so many bytes costs.
        element_bytes: the size of one element (1: `layers` are bytes).
        bucket_bytes: the bucket of `threshold`.
        backward_end: when the backward pass ends; when the lowest layer is ready, by default.

    Raises:
        CommError: an unknown schedule, or numbers that are no backward pass.
    """
    check_schedule(schedule)
    segments = _as_segments(layers)
    _check(segments, ready_times)
    taking_part = [index for index, segment in enumerate(segments) if segment.count > 0]
    end = max(backward_end if backward_end is not None else 0.0, ready_times[0] if segments else 0.0)
    if not taking_part:
        return Plan(schedule, len(segments), (), end)
    problem = Problem(
        numpy.array([segments[index].count * element_bytes for index in taking_part], dtype=float),
        numpy.array([ready_times[index] for index in taking_part], dtype=float),
        cost,
        bucket_bytes,
    )
    ranges = [(taking_part[first], taking_part[last]) for first, last in SCHEDULES[schedule](problem)]
    groups = predict_groups(ranges, segments, ready_times, cost, element_bytes)
    return Plan(schedule, len(segments), groups, end)


def predict_groups(
    ranges: Ranges,
    segments: Sequence[Segment],
    ready_times: Sequence[float],
    cost: Cost,
    element_bytes: int,
) -> tuple[Group, ...]:
    """Return the groups with their slices and their predicted times: one at a time, first come first."""
    groups = []
    channel_free = 0.0
    for first, last in ranges:
        offset = segments[first].offset
        count = segments[last].offset + segments[last].count - offset
        ready = float(ready_times[first])
        start = max(channel_free, ready)
        channel_free = start + cost(count * element_bytes)
        groups.append(Group(first, last, offset, count, count * element_bytes, ready, start, channel_free))
    return tuple(groups)


def check_schedule(schedule: str, *others: str) -> None:
    """Make sure that a schedule is one of `SCHEDULES` or of `others`.

    Raises:
        CommError: it is not; names the nearest one.
    """
    if schedule not in (*SCHEDULES, *others):
        raise CommError(f"unknown schedule '{schedule}'", hint=_suggest(schedule, [*others, *SCHEDULES]))


def _suggest(schedule: str, schedules: Sequence[str]) -> str:
    close = difflib.get_close_matches(schedule, schedules, n=1)
    known = f"known schedules: {', '.join(schedules)}"
    return f"did you mean '{close[0]}'? {known}" if close else known


def _as_segments(layers: Sequence[int | Segment]) -> list[Segment]:
    segments: list[Segment] = []
    offset = 0
    for index, layer in enumerate(layers):
        segment = layer if isinstance(layer, Segment) else Segment(f"layer {index}", offset, layer)
        segments.append(segment)
        offset = segment.offset + segment.count
    return segments


def _check(segments: Sequence[Segment], ready_times: Sequence[float]) -> None:
    if len(segments) != len(ready_times):
        raise CommError(f"{len(segments)} layers, but {len(ready_times)} ready times")
    if any(segment.count < 0 for segment in segments):
        raise CommError("a layer cannot have a negative number of elements")
    for index, (lower, higher) in enumerate(pairwise(ready_times)):
        if not lower >= higher:
            raise CommError(
                f"the gradient of layer {index} is said to be ready at {lower} s, before that of layer "
                f"{index + 1} at {higher} s; the backward pass goes downwards"
            )
    if ready_times and not ready_times[-1] >= 0:
        raise CommError(f"the highest layer cannot be ready at {ready_times[-1]} s")
