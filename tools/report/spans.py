"""What `engine report` knows of a run's timeline: the spans of each iteration and rank, and the plan's groups."""

from __future__ import annotations

import json
import statistics
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mgcaffe.errors import DataError
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
        ranks: what is told of each rank, by rank.
        iterations: those that were recorded.
        plan: the plan in the recorded iterations, None on one rank.
        boxes: all spans, by start.
    """

    path: Path
    ranks: list[dict[str, Any]]
    iterations: list[int]
    plan: dict[str, Any] | None
    boxes: list[Box]

    def span_of(self, iteration: int, rank: int = 0) -> Box | None:
        """The whole of an iteration on a rank."""
        for box in self.boxes:
            if box.category == "iteration" and box.rank == rank and box.facts["iteration"] == iteration:
                return box
        return None

    def typical_iteration(self) -> int:
        """The one whose length is the median."""
        spans = [box for number in self.iterations if (box := self.span_of(number)) is not None]
        spans.sort(key=lambda box: box.length)
        return int(spans[len(spans) // 2].facts["iteration"])

    def phases(self) -> dict[str, float]:
        """The mean milliseconds of an iteration that each phase takes, over ranks; `other` is the rest.

        Where groups are on their way while the ranks agree on the loss, that is waiting for communication.
        """
        wholes = [box for box in self.boxes if box.category == "iteration"]
        totals = dict.fromkeys(PHASES, 0.0)
        for rank in range(len(self.ranks)):
            of_rank = [box for box in self.boxes if box.rank == rank and box.category in PHASES]
            starts = [box.start for box in of_rank]
            for whole in wholes:
                if whole.rank == rank:
                    inside = of_rank[bisect_left(starts, whole.start) : bisect_left(starts, whole.end)]
                    for box, seconds in zip(inside, _own_lengths(inside), strict=True):
                        totals[box.category] += seconds
        while_agreeing = sum(self._shared_time("agree", rank) for rank in range(len(self.ranks)))
        totals["wait"] += while_agreeing
        totals["agree"] -= while_agreeing
        means = {phase: total / len(wholes) for phase, total in totals.items()}
        means["other"] = max(0.0, sum(box.length for box in wholes) / len(wholes) - sum(means.values()))
        return means

    def _shared_time(self, category: str, rank: int) -> float:
        """The milliseconds in which a rank's spans of a category and its all-reduces run at the same time."""
        reduced = self.allreduces(rank)
        return sum(
            max(0.0, min(box.end, other.end) - max(box.start, other.start))
            for box in self.boxes
            if box.category == category and box.rank == rank
            for other in reduced
        )

    def allreduces(self, rank: int | None = None) -> list[Box]:
        """The all-reduces, of one rank or of all."""
        return [box for box in self.boxes if box.category == "allreduce" and rank in (None, box.rank)]

    def backward_ms(self) -> float:
        """The median length of the backward pass, from its first layer's start to its last one's end."""
        lengths = []
        for rank in range(len(self.ranks)):
            for number in self.iterations:
                layers = [
                    box for box in self.boxes
                    if (box.rank, box.category, box.facts.get("iteration")) == (rank, "backward", number)
                ]  # fmt: skip
                if layers:
                    lengths.append(layers[-1].end - layers[0].start)
        return statistics.median(lengths) if lengths else 0.0

    def groups(self) -> list[GroupLine]:
        """Every group of the plan, in the order of the all-reduces."""
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


def _triple(group: dict[str, Any]) -> tuple[float, float, float]:
    return group["ready_ms"], group["start_ms"], group["end_ms"]


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
    """Whether a span lies inside another: waiting for data inside the data layer, an update inside forward."""
    return inner.start >= outer.start and inner.end <= outer.end + 1e-6


def read_timeline(path: Path) -> TimelineData:
    """Read a timeline.

    Raises:
        DataError: it cannot be read, or is no timeline of ours.
    """
    text = read_text(path)
    try:
        content = json.loads(text)
        other = content["otherData"]
        if other["format"] != FORMAT:
            raise KeyError("format")
        boxes = [
            Box(
                event["pid"],
                event["name"],
                event["cat"],
                event["ts"] / 1e3,
                (event["ts"] + event["dur"]) / 1e3,
                event["args"],
            )
            for event in content["traceEvents"]
            if event["ph"] == "X"
        ]
        # Waiting for data may take all of the data layer's time; it counts as inside.
        boxes.sort(key=lambda box: (box.start, -box.end, box.category == "data"))
        return TimelineData(path, other["ranks"], other["iterations"], other["plan"], boxes)
    except (ValueError, KeyError, TypeError):
        raise DataError(
            f"{path}: not a timeline of engine train", hint="give what engine train --timeline wrote"
        ) from None
