"""What `engine report` knows of a run's timeline: the spans of each iteration and rank, and the plan's groups."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from mgcaffe.errors.checked_json import Json, parse_json
from mgcaffe.tools.report.data import read_text
from mgcaffe.tools.timeline.file import FORMAT

PHASES = ("forward", "backward", "wait", "agree", "update", "data", "test")


@dataclass(frozen=True)
class Box:
    """A span of the timeline, in milliseconds."""

    rank: int
    name: str
    category: str
    start: float
    end: float
    facts: dict[str, Any]

    @property
    def length(self) -> float:
        """Its milliseconds."""
        return self.end - self.start


@dataclass(frozen=True)
class GroupLine:
    """One merged group: what was predicted of it and what was measured, in milliseconds since backward began.

    Measured are medians over ranks and iterations.
    """

    number: int
    layers: str
    bytes: int
    predicted: tuple[float, float, float]
    measured: tuple[float, float, float]


@dataclass(frozen=True)
class TimelineData:
    """A timeline file.

    Attributes:
        path: where it lies.
        ranks: what was recorded of each rank, by rank.
        iterations: those that were recorded.
        plan: the plan in the recorded iterations, None on one rank.
        boxes: all spans, by start.
    """

    path: Path
    ranks: list[dict[str, Any]]
    iterations: list[int]
    plan: dict[str, Any] | None
    boxes: list[Box]

    @cached_property
    def has_rounds(self) -> bool:
        """Whether replicas were brought together while it was recorded."""
        return any(box.category == "synchronization" for box in self.boxes)

    @cached_property
    def _of_rank(self) -> dict[int, list[Box]]:
        """The spans of each rank, by start."""
        boxes: dict[int, list[Box]] = {rank: [] for rank in range(len(self.ranks))}
        for box in self.boxes:
            boxes[box.rank].append(box)
        return boxes

    @cached_property
    def _wholes(self) -> dict[tuple[int, int], Box]:
        """The whole of each (rank, iteration)."""
        wholes: dict[tuple[int, int], Box] = {}
        for box in self.boxes:
            if box.category == "iteration":
                wholes.setdefault((box.rank, box.facts["iteration"]), box)
        return wholes

    def span_of(self, iteration: int, rank: int = 0) -> Box | None:
        """Return the whole of an iteration on a rank."""
        return self._wholes.get((rank, iteration))

    def typical_iteration(self) -> int:
        """Return the one whose length is the median."""
        spans = [box for number in self.iterations if (box := self.span_of(number)) is not None]
        spans.sort(key=lambda box: box.length)
        return int(spans[len(spans) // 2].facts["iteration"])

    def phases(self) -> dict[str, float]:
        """Return the mean milliseconds of an iteration that each phase takes, over ranks; `other` is the rest.

        Where groups are on their way while the ranks agree on the loss, that is waiting for communication.
        """
        wholes = [box for box in self.boxes if box.category == "iteration"]
        totals = dict.fromkeys(PHASES, 0.0)
        while_agreeing = 0.0
        for boxes in self._of_rank.values():
            of_rank = [box for box in boxes if box.category in PHASES]
            starts = [box.start for box in of_rank]
            for whole in (box for box in boxes if box.category == "iteration"):
                inside = of_rank[bisect_left(starts, whole.start) : bisect_left(starts, whole.end)]
                for box, seconds in zip(inside, _own_lengths(inside), strict=True):
                    totals[box.category] += seconds
            while_agreeing += _shared_time(boxes, "agree")
        totals["wait"] += while_agreeing
        totals["agree"] -= while_agreeing
        means = {phase: total / len(wholes) for phase, total in totals.items()}
        means["other"] = max(0.0, sum(box.length for box in wholes) / len(wholes) - sum(means.values()))
        return means

    def allreduces(self) -> list[Box]:
        """Return the all-reduces of all ranks."""
        return [box for box in self.boxes if box.category == "allreduce"]

    def backward_ms(self) -> float:
        """Return the median length of the backward pass, from its first layer's start to its last one's end."""
        passes: dict[tuple[int, int], list[Box]] = {}
        for box in self.boxes:
            if box.category == "backward" and "iteration" in box.facts:
                passes.setdefault((box.rank, box.facts["iteration"]), []).append(box)
        recorded = set(self.iterations)
        lengths = [layers[-1].end - layers[0].start for (_, at), layers in passes.items() if at in recorded]
        return statistics.median(lengths) if lengths else 0.0

    def groups(self) -> list[GroupLine]:
        """Return every group of the plan, in the order of the all-reduces."""
        if self.plan is None:
            return []
        facts: dict[int, list[dict[str, Any]]] = {}
        for box in self.allreduces():
            facts.setdefault(box.facts["group"], []).append(box.facts)
        lines = []
        for number, group in enumerate(self.plan["groups"]):
            samples = facts.get(number, [])
            if samples:
                ready, start, end = (statistics.median(each[name] for each in samples) for name in _TIMES)
                measured_ms = (ready, start, end)
                lines.append(GroupLine(number, samples[0]["layers"], group["bytes"], _triple(group), measured_ms))
        return lines


_TIMES = ("ready_ms", "start_ms", "end_ms")
# What is read of the spans of a category, besides the iteration, which others need not tell.
_FACTS: dict[str, dict[str, Callable[[Json], Any]]] = {
    "iteration": {"iteration": Json.integer},
    "allreduce": {
        "group": Json.integer,
        "layers": Json.text,
        "bytes": Json.integer,
        **dict.fromkeys(_TIMES, Json.number),
    },
    "synchronization": {"round": Json.integer, "gap": Json.integer},
}


def _triple(group: dict[str, Any]) -> tuple[float, float, float]:
    return group["ready_ms"], group["start_ms"], group["end_ms"]


def _shared_time(boxes: Sequence[Box], category: str) -> float:
    """Return the milliseconds in which a rank's spans of a category and its all-reduces run at the same time."""
    reduced = [box for box in boxes if box.category == "allreduce"]
    return sum(
        max(0.0, min(box.end, other.end) - max(box.start, other.start))
        for box in boxes
        if box.category == category
        for other in reduced
    )


def _own_lengths(boxes: Sequence[Box]) -> list[float]:
    """Each span's length without that of the spans inside it; `boxes` are in order of their starts."""
    own = [box.length for box in boxes]
    open_boxes: list[int] = []
    for index, box in enumerate(boxes):
        while open_boxes and not _holds(boxes[open_boxes[-1]], box):
            open_boxes.pop()
        if open_boxes:
            own[open_boxes[-1]] -= box.length
        open_boxes.append(index)
    return own


def _holds(outer: Box, inner: Box) -> bool:
    """Return whether a span lies inside another: waiting for data inside the data layer, an update inside forward."""
    return inner.start >= outer.start and inner.end <= outer.end + 1e-6


def read_timeline(path: Path) -> TimelineData:
    """Read a timeline.

    Raises:
        DataError: it cannot be read, or is no timeline of ours; located.
    """
    hint = "give what engine train --timeline wrote"
    content = parse_json(read_text(path), str(path), "not a timeline of engine train", hint=hint)
    other = content["otherData"]
    if other["format"].text() != FORMAT:
        other["format"].fail(f"its format is not '{FORMAT}'")
    ranks = [_rank(rank) for rank in other["ranks"].elements()]
    boxes = [_box(event, len(ranks)) for event in content["traceEvents"].elements() if event["ph"].text() == "X"]
    # Waiting for data may take all of the data layer's time; it counts as inside.
    boxes.sort(key=lambda box: (box.start, -box.end, box.category == "data"))
    plan = other["plan"]
    timeline = TimelineData(
        path,
        ranks,
        [number.integer() for number in other["iterations"].elements()],
        _plan(plan) if plan.value is not None else None,
        boxes,
    )
    recorded = {box.facts["iteration"] for box in boxes if box.category == "iteration" and box.rank == 0}
    if not timeline.iterations or len(set(timeline.iterations)) < len(timeline.iterations):
        other["iterations"].fail("its iterations should be one or more, each named once")
    if missing := [number for number in timeline.iterations if number not in recorded]:
        other["iterations"].fail(f"rank 0 has no span for iteration {missing[0]}")
    return timeline


def _rank(value: Json) -> dict[str, Any]:
    return {"clock_uncertainty_us": value["clock_uncertainty_us"].number(least=0)}


def _box(event: Json, ranks: int) -> Box:
    category, facts = event["cat"].text(), event["args"]
    start, length = event["ts"].number(), event["dur"].number(least=0)
    found: dict[str, Any] = {name: read(facts[name]) for name, read in _FACTS.get(category, {}).items()}
    if category != "iteration" and (iteration := facts.get("iteration")) is not None:
        found["iteration"] = iteration.integer()
    rank = event["pid"].integer(least=0, most=ranks - 1)
    return Box(rank, event["name"].text(), category, start / 1e3, (start + length) / 1e3, found)


def _plan(plan: Json) -> dict[str, Any]:
    groups = [
        {name: group[name].number() for name in _TIMES} | {"bytes": group["bytes"].integer(least=0)}
        for group in plan["groups"].elements()
    ]
    return {"schedule": plan["schedule"].text(), "backward_ms": plan["backward_ms"].number(least=0), "groups": groups}
