"""A layered layout: boxes in rows by the longest path to them, few crossings, straight wires.

After Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", 1981: rows, an
order within each row by barycenters, then coordinates. Wires that pass a row have a place in it, as a box of no width.
Everything is in two directions: `along` the wires, from row to row, and `across` them. A wire with several readers
is one line that branches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

_BOX_GAP, _WIRE_GAP, _ROW_GAP = 22.0, 13.0, 24.0
_ENTRY_GAP = 16.0
_ORDER_ROUNDS, _PLACE_ROUNDS = 8, 24
# How strongly two vertices of a link draw each other: most where a bend would be seen most.
_WIRE_TO_WIRE, _WIRE_TO_BOX, _BOX_TO_BOX = 8.0, 2.0, 1.0


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


@dataclass
class _Vertex:
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
class _Link:
    """A wire between neighbouring rows; the offsets are from the middles of its ends."""

    run: int
    tail: int
    tail_offset: float
    head: int
    head_offset: float | None


@dataclass
class _Rows:
    """The graph while it is laid out: the first vertices are the boxes."""

    vertices: list[_Vertex]
    links: list[_Link]
    rows: list[list[int]] = field(default_factory=list)


def lay_out(
    sizes: Sequence[tuple[float, float]], runs: Sequence[Run], first: Sequence[int] = (), last: Sequence[int] = ()
) -> Layout:
    """Place boxes and wires.

    Args:
        sizes: of each box, across and along.
        runs: the wires; they make no circle.
        first, last: boxes that are alone in the first and in the last row.
    """
    graph = _in_rows(sizes, runs, first, last)
    _order(graph)
    _spread_entries(graph)
    _place(graph)
    return _finished(graph, sizes)


# -- rows ------------------------------------------------------------------------------------------------------


def _in_rows(
    sizes: Sequence[tuple[float, float]], runs: Sequence[Run], first: Sequence[int], last: Sequence[int]
) -> _Rows:
    row = _row_numbers(len(sizes), runs, first, last)
    vertices = [_Vertex(size[0], row[box]) for box, size in enumerate(sizes)]
    links = []
    for number, run in enumerate(runs):
        tails = {row[run.tail]: (run.tail, run.offset)}
        for passed in range(row[run.tail] + 1, max((row[head] for head, _ in run.heads), default=0)):
            links.append(_Link(number, *tails[passed - 1], len(vertices), 0.0))
            tails[passed] = (len(vertices), 0.0)
            vertices.append(_Vertex(0.0, passed, number))
        links += [_Link(number, *tails[row[head] - 1], head, offset) for head, offset in run.heads]
    return _Rows(vertices, links)


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


# -- the order within rows -------------------------------------------------------------------------------------


def _order(graph: _Rows) -> None:
    """Order the vertices of each row so that few links cross, beginning with the order of a walk along the wires."""
    below: list[list[int]] = [[] for _ in graph.vertices]
    above: list[list[int]] = [[] for _ in graph.vertices]
    for link in graph.links:
        below[link.tail].append(link.head)
        above[link.head].append(link.tail)
    graph.rows = [[] for _ in range(max((vertex.row for vertex in graph.vertices), default=-1) + 1)]
    seen: set[int] = set()
    for root in range(len(graph.vertices)):
        waiting = [root]
        while waiting:
            vertex = waiting.pop()
            if vertex not in seen:
                seen.add(vertex)
                graph.rows[graph.vertices[vertex].row].append(vertex)
                waiting += reversed(below[vertex])
    best, fewest = [list(row) for row in graph.rows], _crossings(graph)
    for turn in range(_ORDER_ROUNDS):
        if not fewest:
            break
        down = turn % 2 == 0
        rows = graph.rows[1:] if down else graph.rows[-2::-1]
        for row in rows:
            _sort_by_neighbours(graph, row, above if down else below)
        if (count := _crossings(graph)) < fewest:
            best, fewest = [list(row) for row in graph.rows], count
    graph.rows = best


def _sort_by_neighbours(graph: _Rows, row: list[int], neighbours: Sequence[Sequence[int]]) -> None:
    place = {vertex: number for each in graph.rows for number, vertex in enumerate(each)}

    def wanted(vertex: int) -> float:
        near = neighbours[vertex]
        return sum(place[other] for other in near) / len(near) if near else float(place[vertex])

    row.sort(key=wanted)


def _crossings(graph: _Rows) -> int:
    """Return how many pairs of links between neighbouring rows cross."""
    place = {vertex: number for row in graph.rows for number, vertex in enumerate(row)}
    by_row: dict[int, list[tuple[int, int]]] = {}
    for link in graph.links:
        by_row.setdefault(graph.vertices[link.tail].row, []).append((place[link.tail], place[link.head]))
    return sum(
        (tail < other_tail and head > other_head) or (tail > other_tail and head < other_head)
        for pairs in by_row.values()
        for number, (tail, head) in enumerate(pairs)
        for other_tail, other_head in pairs[:number]
    )


def _spread_entries(graph: _Rows) -> None:
    """Let the wires that enter a box do so side by side, in the order in which they come."""
    place = {vertex: number for row in graph.rows for number, vertex in enumerate(row)}
    entering: dict[int, list[_Link]] = {}
    for link in graph.links:
        if link.head_offset is None:
            entering.setdefault(link.head, []).append(link)
    for head, links in entering.items():
        links.sort(key=lambda link: (place[link.tail], link.tail_offset))
        gap = min(_ENTRY_GAP, 0.8 * graph.vertices[head].size / len(links))
        for number, link in enumerate(links):
            link.head_offset = (number - (len(links) - 1) / 2) * gap


# -- coordinates -----------------------------------------------------------------------------------------------


def _place(graph: _Rows) -> None:
    """Move each row's vertices towards their neighbours in the rows before and after, in turns."""
    up: list[list[tuple[int, float, float]]] = [[] for _ in graph.vertices]
    down: list[list[tuple[int, float, float]]] = [[] for _ in graph.vertices]
    for link in graph.links:
        wires = (graph.vertices[link.tail].run >= 0) + (graph.vertices[link.head].run >= 0)
        weight = (_BOX_TO_BOX, _WIRE_TO_BOX, _WIRE_TO_WIRE)[wires]
        shift = link.tail_offset - (link.head_offset or 0.0)
        up[link.head].append((link.tail, shift, weight))
        down[link.tail].append((link.head, -shift, weight))
    for row in graph.rows:
        at = 0.0
        for left, right in zip([None, *row], row, strict=False):
            at += 0.0 if left is None else _distance(graph, left, right)
            graph.vertices[right].at = at
    for turn in range(_PLACE_ROUNDS):
        for row in graph.rows if turn % 2 == 0 else reversed(graph.rows):
            _move(graph, row, up, down)
    for row in graph.rows:
        _move(graph, row, up)  # each below what it reads, so that chains are straight
    _straighten(graph)


def _straighten(graph: _Rows) -> None:
    """Let each wire that passes rows do so in as few straight parts as its neighbours leave space for."""
    passing: dict[int, list[tuple[int, float, float]]] = {}
    for row in graph.rows:
        for left, vertex, right in zip([None, *row], row, [*row[1:], None], strict=False):
            if graph.vertices[vertex].run >= 0:
                low = -math.inf if left is None else graph.vertices[left].at + _distance(graph, left, vertex)
                high = math.inf if right is None else graph.vertices[right].at - _distance(graph, vertex, right)
                passing.setdefault(graph.vertices[vertex].run, []).append((vertex, low, high))
    for places in passing.values():
        while places:
            low, high, count = -math.inf, math.inf, 0
            for _, its_low, its_high in places:
                if max(low, its_low) > min(high, its_high):
                    break
                low, high, count = max(low, its_low), min(high, its_high), count + 1
            count = max(count, 1)
            part, places = places[:count], places[count:]
            mean = sum(graph.vertices[vertex].at for vertex, _, _ in part) / count
            for vertex, _, _ in part:
                graph.vertices[vertex].at = min(max(mean, low), high)


def _distance(graph: _Rows, left: int, right: int) -> float:
    """Return the least distance of the middles of two neighbours in a row."""
    first, second = graph.vertices[left], graph.vertices[right]
    gap = _WIRE_GAP if first.run >= 0 and second.run >= 0 else _BOX_GAP
    return (first.size + second.size) / 2 + gap


def _move(
    graph: _Rows,
    row: Sequence[int],
    *neighbours: Sequence[Sequence[tuple[int, float, float]]],
) -> None:
    """Give a row the places nearest to what its vertices want, with the distances that they need.

    Least squares under minimal distances: isotonic regression by pooling neighbours that violate the order.
    """
    pools: list[tuple[float, float, int]] = []  # mean, weight, count
    shifts = [0.0]
    for left, right in itertools.pairwise(row):
        shifts.append(shifts[-1] + _distance(graph, left, right))
    for vertex, shift in zip(row, shifts, strict=True):
        pulls = [pull for side in neighbours for pull in side[vertex]]
        weight = sum(pull[2] for pull in pulls)
        wanted = sum((graph.vertices[other].at + by) * force for other, by, force in pulls) / weight if weight else 0.0
        mean, weight, count = (wanted if pulls else graph.vertices[vertex].at) - shift, weight or 0.1, 1
        while pools and pools[-1][0] >= mean:
            last_mean, last_weight, last_count = pools.pop()
            mean = (mean * weight + last_mean * last_weight) / (weight + last_weight)
            weight, count = weight + last_weight, count + last_count
        pools.append((mean, weight, count))
    means = [mean for mean, _, count in pools for _ in range(count)]
    for vertex, mean, shift in zip(row, means, shifts, strict=True):
        graph.vertices[vertex].at = mean + shift


# -- the result ------------------------------------------------------------------------------------------------


def _finished(graph: _Rows, sizes: Sequence[tuple[float, float]]) -> Layout:
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
