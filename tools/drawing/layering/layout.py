"""Lays boxes and wires out in three steps: in which row, in what order, where across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mgcaffe.tools.drawing.layering.order import order, spread_entries
from mgcaffe.tools.drawing.layering.places import place
from mgcaffe.tools.drawing.layering.rows import Rows, Run, in_rows

_ROW_GAP = 24.0


@dataclass
class Piece:
    """A part of a wire.

    Attributes:
        run: the number of its wire.
        row: the row in which it begins.
        across, along: where it begins.
        to_across, to_along: where it ends.
        bend: whether it leads from one row to the next, as a curve; otherwise it is straight.
        tail: the box that it begins at, or -1.
        head: the box that it ends at, or -1.
    """

    run: int
    row: int
    across: float
    along: float
    to_across: float
    to_along: float
    bend: bool = False
    tail: int = -1
    head: int = -1


@dataclass
class Layout:
    """Where everything lies.

    Attributes:
        middle: of each box, across.
        start: of each box, along.
        row: of each box.
        rows: where each row begins and ends, along.
        pieces: those of the wires.
        across, along: the size of the whole.
    """

    middle: list[float]
    start: list[float]
    row: list[int]
    rows: list[tuple[float, float]]
    pieces: list[Piece]
    across: float
    along: float


def lay_out(
    sizes: Sequence[tuple[float, float]], runs: Sequence[Run], first: Sequence[int] = (), last: Sequence[int] = ()
) -> Layout:
    """Place boxes and wires.

    Args:
        sizes: of each box, across and along.
        runs: the wires; they make no circle.
        first, last: boxes that are alone in the first and in the last row.
    """
    graph = in_rows(sizes, runs, first, last)
    order(graph)
    spread_entries(graph)
    place(graph)
    return _finished(graph, sizes)


def _finished(graph: Rows, sizes: Sequence[tuple[float, float]]) -> Layout:
    left = min((vertex.at - vertex.size / 2 for vertex in graph.vertices), default=0.0)
    for vertex in graph.vertices:
        vertex.at -= left
    lengths = [max((sizes[v][1] for v in row if v < len(sizes)), default=0.0) for row in graph.rows]
    starts = [sum(lengths[:row]) + row * _ROW_GAP for row in range(len(lengths))]
    ends = [start + length for start, length in zip(starts, lengths, strict=True)]
    pieces = []
    straight = set()
    for link in graph.links:
        tail, head = graph.vertices[link.tail], graph.vertices[link.head]
        across, to_across = tail.at + link.tail_offset, head.at + (link.head_offset or 0.0)
        box = link.tail if tail.run < 0 else -1
        begin, end = starts[tail.row] + (sizes[box][1] if box >= 0 else 0.0), ends[tail.row]
        if begin < end and (link.tail, link.tail_offset) not in straight:
            straight.add((link.tail, link.tail_offset))
            pieces.append(Piece(link.run, tail.row, across, begin, across, end, tail=box))
        into = link.head if head.run < 0 else -1
        pieces.append(Piece(link.run, tail.row, across, end, to_across, starts[head.row], True, box, into))
    boxes = graph.vertices[: len(sizes)]
    return Layout(
        middle=[box.at for box in boxes],
        start=[starts[box.row] for box in boxes],
        row=[box.row for box in boxes],
        rows=list(zip(starts, ends, strict=True)),
        pieces=pieces,
        across=max((vertex.at + vertex.size / 2 for vertex in graph.vertices), default=0.0),
        along=ends[-1] if ends else 0.0,
    )
