"""Breaks a long layout into columns side by side, as text is, so that a deep net fills a page."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from mgcaffe.tools.drawing.layering.layout import Layout, Piece

_GUTTER, _TRACK, _MARGIN = 30.0, 8.0, 10.0
_MOST_COLUMNS = 24
# Shorter ones stay whole: pixels for a page that is wider than long, more for one that is longer than wide.
_SHORT = 900.0
# A further column has to make the whole so much smaller; a wire across a break costs as much as so many pixels.
_WORTH, _CROSSING_COST = 0.87, 45.0


def wrapped(layout: Layout, sizes: Sequence[tuple[float, float]], columns: int, aspect: float) -> Layout:
    """Return a layout in columns.

    Args:
        layout: as `lay_out` returns it.
        sizes: of each box, across and along.
        columns: how many; 0 chooses the number that fits a page best.
        aspect: that page's size across over its size along.
    """
    if columns == 0 and layout.along <= _SHORT * max(1.0, 1 / aspect):
        return layout
    counts = range(1, _MOST_COLUMNS + 1) if columns == 0 else (columns,)
    best = layout
    for count in counts:
        found = _in_columns(layout, sizes, _breaks(layout, count)) if count > 1 else layout
        if columns or _need(found, aspect) < _WORTH * _need(best, aspect):
            best = found
    return best


def _need(layout: Layout, aspect: float) -> float:
    """Return how long a page of this aspect has to be."""
    return max(layout.across / aspect, layout.along)


def _breaks(layout: Layout, count: int) -> list[int]:
    """Return the rows that columns begin with: near equal parts, where few wires cross."""
    crossing = [0] * len(layout.rows)
    for _run, row in {(piece.run, piece.row) for piece in layout.pieces if piece.bend}:
        crossing[row] += 1
    breaks = [0]
    for number in range(1, count):
        target = layout.along * number / count
        possible = range(breaks[-1] + 1, len(layout.rows))
        if not possible:
            break
        breaks.append(
            min(possible, key=lambda row: abs(layout.rows[row][0] - target) + _CROSSING_COST * crossing[row - 1])
        )
    return breaks


def _in_columns(layout: Layout, sizes: Sequence[tuple[float, float]], breaks: list[int]) -> Layout:
    column = [sum(row >= first for first in breaks) - 1 for row in range(len(layout.rows))]
    over = _wires_over(layout, column, len(breaks))
    top = _MARGIN + _TRACK * max(map(len, over))
    shift_across, shift_along, lefts, bottoms = [], [], [], []
    at = 0.0
    for number, first in enumerate(breaks):
        rows = [row for row, its in enumerate(column) if its == number]
        low, high = _extent(layout, sizes, set(rows))
        shift_across.append(at - low)
        shift_along.append(top - layout.rows[first][0])
        bottoms.append(layout.rows[rows[-1]][1] + shift_along[-1])
        at += high - low
        lefts.append(at)
        at += _GUTTER + _TRACK * len(over[number])
    pieces: list[Piece] = []
    for piece in layout.pieces:
        here = column[piece.row]
        there = column[piece.row + 1] if piece.bend else here
        begin = (piece.across + shift_across[here], piece.along + shift_along[here])
        end = (piece.to_across + shift_across[there], piece.to_along + shift_along[there])
        if here == there:
            pieces.append(Piece(piece.run, piece.row, *begin, *end, piece.bend, piece.tail, piece.head))
            continue
        number = over[here].index((piece.run, piece.across))
        # The first wire goes round the others: below them, then to their right, then below them again.
        track = _TRACK * (len(over[here]) - 1 - number)
        gutter = lefts[here] + _GUTTER / 2 + track
        under, above = bottoms[here] + _MARGIN + track, top - _MARGIN - _TRACK * number
        corners = [begin, (begin[0], under), (gutter, under), (gutter, above), (end[0], above), end]
        for index, (corner, following) in enumerate(itertools.pairwise(corners)):
            tail = piece.tail if index < 2 else -1
            head = piece.head if index > 2 else -1
            part = Piece(piece.run, piece.row, *corner, *following, False, tail, head)
            pieces += [part] if part not in pieces[-40:] else []
    row_along = [shift_along[its] for its in column]
    return Layout(
        middle=[at + shift_across[column[row]] for at, row in zip(layout.middle, layout.row, strict=True)],
        start=[at + row_along[row] for at, row in zip(layout.start, layout.row, strict=True)],
        row=layout.row,
        rows=[(start + by, end + by) for (start, end), by in zip(layout.rows, row_along, strict=True)],
        pieces=pieces,
        across=lefts[-1],
        along=max(bottoms) + _MARGIN + _TRACK * max(map(len, over)),
    )


def _wires_over(layout: Layout, column: Sequence[int], count: int) -> list[list[tuple[int, float]]]:
    """Return for each column the wires that lead on to the next, with where they leave, from first to last."""
    found: list[set[tuple[float, int]]] = [set() for _ in range(count)]
    for piece in layout.pieces:
        if piece.bend and column[piece.row + 1] != column[piece.row]:
            found[column[piece.row]].add((piece.across, piece.run))
    return [[(run, across) for across, run in sorted(each)] for each in found]


def _extent(layout: Layout, sizes: Sequence[tuple[float, float]], rows: set[int]) -> tuple[float, float]:
    """Return the least and the greatest position across of what lies in some rows."""
    ends = [
        end
        for middle, (size, _), row in zip(layout.middle, sizes, layout.row, strict=True)
        if row in rows
        for end in (middle - size / 2, middle + size / 2)
    ]
    ends += [piece.across for piece in layout.pieces if piece.row in rows]
    ends += [piece.to_across for piece in layout.pieces if piece.bend and piece.row + 1 in rows]
    return min(ends), max(ends)
