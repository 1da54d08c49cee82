"""The second step: the order of the boxes and wires within rows, so that few wires cross."""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.tools.drawing.layering.rows import Link, Rows

_ENTRY_GAP = 16.0
_ROUNDS = 8


def order(graph: Rows) -> None:
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
    for turn in range(_ROUNDS):
        if not fewest:
            break
        down = turn % 2 == 0
        rows = graph.rows[1:] if down else graph.rows[-2::-1]
        for row in rows:
            _sort_by_neighbours(graph, row, above if down else below)
        if (count := _crossings(graph)) < fewest:
            best, fewest = [list(row) for row in graph.rows], count
    graph.rows = best


def _sort_by_neighbours(graph: Rows, row: list[int], neighbours: Sequence[Sequence[int]]) -> None:
    place = {vertex: number for each in graph.rows for number, vertex in enumerate(each)}

    def wanted(vertex: int) -> float:
        near = neighbours[vertex]
        return sum(place[other] for other in near) / len(near) if near else float(place[vertex])

    row.sort(key=wanted)


def _crossings(graph: Rows) -> int:
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


def spread_entries(graph: Rows) -> None:
    """Let the wires that enter a box do so side by side, in the order in which they come."""
    place = {vertex: number for row in graph.rows for number, vertex in enumerate(row)}
    entering: dict[int, list[Link]] = {}
    for link in graph.links:
        if link.head_offset is None:
            entering.setdefault(link.head, []).append(link)
    for head, links in entering.items():
        links.sort(key=lambda link: (place[link.tail], link.tail_offset))
        gap = min(_ENTRY_GAP, 0.8 * graph.vertices[head].size / len(links))
        for number, link in enumerate(links):
            link.head_offset = (number - (len(links) - 1) / 2) * gap
