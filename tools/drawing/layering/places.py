"""The third step: where everything lies across the wires, so that they are straight."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from mgcaffe.tools.drawing.layering.rows import Rows

_BOX_GAP, _WIRE_GAP = 22.0, 13.0
_ROUNDS = 24
# How strongly two vertices of a link draw each other: most where a bend would be seen most.
_WIRE_TO_WIRE, _WIRE_TO_BOX, _BOX_TO_BOX = 8.0, 2.0, 1.0


def place(graph: Rows) -> None:
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
    for turn in range(_ROUNDS):
        for row in graph.rows if turn % 2 == 0 else reversed(graph.rows):
            _move(graph, row, up, down)
    for row in graph.rows:
        _move(graph, row, up)  # each below what it reads, so that chains are straight
    _straighten(graph)


def _straighten(graph: Rows) -> None:
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


def _distance(graph: Rows, left: int, right: int) -> float:
    """Return the least distance of the middles of two neighbours in a row."""
    first, second = graph.vertices[left], graph.vertices[right]
    gap = _WIRE_GAP if first.run >= 0 and second.run >= 0 else _BOX_GAP
    return (first.size + second.size) / 2 + gap


def _move(
    graph: Rows,
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
