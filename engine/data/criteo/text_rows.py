"""The rows of one or several text files, a line each, by their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mgcaffe.engine.data.criteo.rows import MAX_ROW_BYTES, Places, RowProblem, Rows, parse_row, parse_rows
from mgcaffe.engine.data.criteo.text_files import TextFile, open_text
from mgcaffe.errors import DataError, Location

_NEWLINE = 10
_MAX_GAP = 1 << 11
"""Rows with fewer bytes between them are read as one piece; a piece of its own takes as long as some 2,000 bytes."""


@dataclass(frozen=True)
class _Lines:
    """The lines of a file: number i lies from starts[i] to the line break at starts[i + 1] - 1."""

    file: TextFile
    starts: Places

    @property
    def count(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def of(cls, file: TextFile) -> _Lines:
        """Go through a file once; 8 bytes a line stay in memory."""
        found, at, last = [np.zeros(1, np.int64)], 0, _NEWLINE
        for piece in file.pieces():
            found.append(np.flatnonzero(np.frombuffer(piece, np.uint8) == _NEWLINE) + (at + 1))
            at += len(piece)
            last = piece[-1]
        if last != _NEWLINE:  # as if there were a line break behind the last line
            found.append(np.array([at + 1]))
        return cls(file, np.concatenate(found))

    def line(self, number: int) -> bytes:
        """Return a line without its line break; of one that is too long only the beginning."""
        self.file.check_unchanged()
        start, end = int(self.starts[number]), int(self.starts[number + 1]) - 1
        return self.file.read(start, min(end, start + MAX_ROW_BYTES + 1))

    def parse(self, numbers: Places) -> tuple[Rows, NDArray[np.bool_]]:
        """Return the values of these lines, in this order, and of which they are right. See parse_rows."""
        self.file.check_unchanged()
        order = np.argsort(numbers, kind="stable")
        starts, ends = self.starts[numbers[order]], self.starts[numbers[order] + 1] - 1
        ends = np.minimum(ends, starts + MAX_ROW_BYTES + 1)
        breaks = (np.flatnonzero(starts[1:] - ends[:-1] > _MAX_GAP) + 1).tolist()
        pieces: list[bytes] = []
        size = 0
        for first, last in zip([0, *breaks], [*breaks, len(order)], strict=True):
            start, end = int(starts[first]), int(ends[last - 1])
            pieces.append(self.file.read(start, end))
            if len(pieces[-1]) != end - start:
                raise DataError(f"data source '{self.file.name}' ends too early: it changed while it was being read")
            starts[first:last] += size - start
            ends[first:last] += size - start
            size += end - start + 1
        rows, right = parse_rows(np.frombuffer(b"\n".join(pieces), np.uint8), starts, ends)
        back = np.argsort(order, kind="stable")
        return rows.take(back), right[back]


class TextRows:
    """Rows of text files by number, which runs on from file to file.

    Args:
        names: the files, in this order; plain or packed by gzip.

    Raises:
        DataError: one cannot be read, or all are empty.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._files = [_Lines.of(open_text(name)) for name in names]
        self._ends = np.cumsum([file.count for file in self._files])
        if not len(self):
            raise DataError(f"data source {', '.join(map(repr, names))} holds no rows")
        self.in_order_only = next((file.file.name for file in self._files if file.file.packed), None)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._ends[-1])

    def row(self, number: int) -> Rows:
        """Return one row; a problem is located by file, line and column. See RowSource."""
        which = int(np.searchsorted(self._ends, number, side="right"))
        file = self._files[which]
        line = number - (int(self._ends[which]) - file.count)
        try:
            return parse_row(file.line(line))
        except RowProblem as problem:
            location = Location(file.file.name, line + 1, problem.column)
            raise DataError(problem.message, location=location, hint=problem.hint) from problem

    def rows(self, numbers: Sequence[int]) -> tuple[Rows, NDArray[np.bool_]]:
        """Return many rows, and which of them are right. See RowSource."""
        wanted = np.asarray(numbers, np.int64)
        which = np.searchsorted(self._ends, wanted, side="right")
        rows, right = Rows.zeros(len(wanted)), np.zeros(len(wanted), bool)
        for number in np.unique(which):
            places = np.flatnonzero(which == number)
            file = self._files[number]
            found, right[places] = file.parse(wanted[places] - (self._ends[number] - file.count))
            rows.put(places, found)
        return rows, right
