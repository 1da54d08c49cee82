"""The first step: in which row each box lies, and where the wires between them pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Run:
    """A wire to be laid.

    Attributes:
        tail: the box that it leaves.
        offset: where, across, from the box's middle.
        heads: the boxes that it enters, with the same offset for each, or None to have it chosen.
    """

    tail: int
    offset: float
    heads: Sequence[tuple[int, float | None]]


@dataclass
class Vertex:
    """A box, or a wire's place in a row.

    Attributes:
        size: across.
        row: its row.
        run: the wire, for a wire's place; -1 for a box.
    """

    size: float
    row: int
    run: int = -1
    at: float = 0.0


@dataclass
class Link:
    """A wire between neighbouring rows; the offsets are from the middles of its ends."""

    run: int
    tail: int
    tail_offset: float
    head: int
    head_offset: float | None


@dataclass
class Rows:
    """The graph while it is laid out: the first vertices are the boxes."""

    vertices: list[Vertex]
    links: list[Link]
    rows: list[list[int]] = field(default_factory=list)


def in_rows(
    sizes: Sequence[tuple[float, float]], runs: Sequence[Run], first: Sequence[int], last: Sequence[int]
) -> Rows:
    """Return the boxes and what the wires take of each row, not yet in order; arguments as for `lay_out`."""
    row = _row_numbers(len(sizes), runs, first, last)
    vertices = [Vertex(size[0], row[box]) for box, size in enumerate(sizes)]
    links = []
    for number, run in enumerate(runs):
        tails = {row[run.tail]: (run.tail, run.offset)}
        for passed in range(row[run.tail] + 1, max((row[head] for head, _ in run.heads), default=0)):
            links.append(Link(number, *tails[passed - 1], len(vertices), 0.0))
            tails[passed] = (len(vertices), 0.0)
            vertices.append(Vertex(0.0, passed, number))
        links += [Link(number, *tails[row[head] - 1], head, offset) for head, offset in run.heads]
    return Rows(vertices, links)


def _row_numbers(count: int, runs: Sequence[Run], first: Sequence[int], last: Sequence[int]) -> list[int]:
    """Return the length of the longest path to each box; one that reads nothing is put just before its readers."""
    after: list[set[int]] = [set() for _ in range(count)]
    before = [0] * count
    for run in runs:
        for head, _ in run.heads:
            if head not in after[run.tail]:
                after[run.tail].add(head)
                before[head] += 1
    missing = list(before)
    row = [0 if not first or box in first else 1 for box in range(count)]
    ready = [box for box in range(count) if not missing[box]]
    for box in ready:
        for head in sorted(after[box]):
            row[head] = max(row[head], row[box] + 1)
            missing[head] -= 1
            if not missing[head]:
                ready.append(head)
    assert len(ready) == count, "wires make a circle"
    for box in range(count):
        if not before[box] and after[box] and box not in first:
            row[box] = min(row[head] for head in after[box]) - 1
    end = max(row, default=0)
    for box in last:
        row[box] = end if all(row[other] < end for other in range(count) if other not in last) else end + 1
    return row
