"""Rows in Criteo's format: label, 13 integers and 26 categorical values of up to 16 hexadecimal digits, between tabs.

An empty integer or categorical field is a missing value, which counts as 0, as in the reference (DLRM, data_utils.py).
`parse_row` says what a row means and what is wrong with it; `parse_rows` does the same for many rows at once, of the
usual form only, and leaves the others to it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

INTEGERS = 13
CATEGORIES = 26
COLUMNS = 1 + INTEGERS + CATEGORIES
MAX_ROW_BYTES = 4096
"""A longer line is no row; Criteo's have at most some 370 bytes."""

_INTEGER = re.compile(rb"-?[0-9]{1,18}")
_HEXADECIMAL = re.compile(rb"[0-9A-Fa-f]{1,16}")
_HEX_DIGITS = 8
_MAX_DIGITS = 18
_INVALID = 255
_HIGH_NIBBLES = np.uint64(0xF0F0F0F0F0F0F0F0)
_TAB, _NEWLINE, _MINUS, _ZERO = b"\t\n-0"
_MAX_SHOWN = 20

_NIBBLES = np.full(256, _INVALID, np.uint8)
for _number, _digits in enumerate([*(bytes([48 + n]) for n in range(10)), *(b"aA", b"bB", b"cC", b"dD", b"eE", b"fF")]):
    for _digit in _digits:
        _NIBBLES[_digit] = _number

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """The values of some rows.

    Attributes:
        labels: 0 or 1, (N,), uint8.
        integers: (N, 13), int64; 0 where missing.
        categories: (N, 26), uint64; 0 where missing.
    """

    labels: NDArray[np.uint8]
    integers: NDArray[np.int64]
    categories: NDArray[np.uint64]

    @classmethod
    def zeros(cls, count: int) -> Rows:
        """Return so many rows of zeros."""
        return cls(
            np.zeros(count, np.uint8), np.zeros((count, INTEGERS), np.int64), np.zeros((count, CATEGORIES), np.uint64)
        )

    def take(self, places: NDArray[np.intp]) -> Rows:
        """Return the rows at `places`."""
        return Rows(self.labels[places], self.integers[places], self.categories[places])

    def joined(self, others: Rows) -> Rows:
        """Return these rows and others behind them."""
        return Rows(
            np.concatenate([self.labels, others.labels]),
            np.concatenate([self.integers, others.integers]),
            np.concatenate([self.categories, others.categories]),
        )

    def put(self, places: NDArray[np.intp], rows: Rows) -> None:
        """Overwrite the rows at `places` with `rows`."""
        self.labels[places] = rows.labels
        self.integers[places] = rows.integers
        self.categories[places] = rows.categories


class RowSource(Protocol):
    """Rows by number, wherever they come from. It is used by one thread at a time.

    Attributes:
        in_order_only: the name of a file that cannot be read in any order fast enough; None if there is none.
    """

    in_order_only: str | None

    def __len__(self) -> int:
        """Return the number of rows."""

    def row(self, number: int) -> Rows:
        """Return the values of one row.

        Raises:
            DataError: it is malformed or damaged; the message, or its location, says which one.
        """

    def rows(self, numbers: Sequence[int]) -> tuple[Rows, NDArray[np.bool_]]:
        """Return the values of many rows, and of which of them they are right; the others are for `row`.

        Raises:
            DataError: a file cannot be read, or has changed.
        """


class RowProblem(Exception):
    """A row that is no row of this format.

    Attributes:
        message: what is wrong.
        column: the character of the line at which it is wrong, from 1.
        hint: what to do; None if nothing in particular.
    """

    def __init__(self, message: str, column: int, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.column, self.hint = message, column, hint


def parse_row(line: bytes) -> Rows:
    """Return the values of one row, N = 1.

    Args:
        line: without the line break; a carriage return at its end is left out.

    Raises:
        RowProblem: it is malformed.
    """
    if len(line) > MAX_ROW_BYTES:
        raise RowProblem(f"the row has over {MAX_ROW_BYTES} bytes", 1)
    fields = line.removesuffix(b"\r").split(b"\t")
    if len(fields) != COLUMNS:
        hint = "Criteo's test.txt has no labels, so it cannot be used here" if len(fields) == COLUMNS - 1 else None
        raise RowProblem(f"the row has {len(fields)} column(s), not {COLUMNS}", 1, hint)
    if fields[0] not in (b"0", b"1"):
        raise RowProblem(f"the label is {_shown(fields[0])}, not 0 or 1", 1)
    rows = Rows.zeros(1)
    rows.labels[0] = int(fields[0])
    for number, field in enumerate(fields[1 : 1 + INTEGERS]):
        if field:
            if not _INTEGER.fullmatch(field):
                what = f"integer {number + 1} is {_shown(field)}, no whole number of at most 18 digits"
                raise RowProblem(what, _column(fields, 1 + number))
            rows.integers[0, number] = int(field)
    for number, field in enumerate(fields[1 + INTEGERS :]):
        if field:
            if not _HEXADECIMAL.fullmatch(field):
                what = f"category {number + 1} is {_shown(field)}, not 1 to 16 hexadecimal digits"
                raise RowProblem(what, _column(fields, 1 + INTEGERS + number))
            rows.categories[0, number] = int(field, 16)
    return rows


def parse_rows(text: Bytes, starts: Places, ends: Places) -> tuple[Rows, NDArray[np.bool_]]:
    """Return the values of many rows, and of which of them they are right.

    Right are those of well-formed rows whose categorical values have eight digits, as Criteo's have; others hold
    anything, and have to go through `parse_row`.

    Args:
        text: the bytes of the rows, and maybe of others between them.
        starts, ends: where each row begins and where its line break lies (or would lie, at the end of the text).
    """
    # Behind the last row: line breaks in place of separators that it lacks, and room to read on past its fields.
    text = np.concatenate([text, np.full(COLUMNS, _NEWLINE, np.uint8), np.zeros(_MAX_DIGITS, np.uint8)])
    separators = np.flatnonzero((text == _TAB) | (text == _NEWLINE))
    field_ends = separators[np.searchsorted(separators, starts)[:, None] + np.arange(COLUMNS)]
    field_starts = np.concatenate([starts[:, None], field_ends[:, :-1] + 1], axis=1)
    right = field_ends[:, -1] == ends  # and so there is no line break among them
    integer_fields, category_fields = slice(1, 1 + INTEGERS), slice(1 + INTEGERS, COLUMNS)
    labels = text[starts] - np.uint8(_ZERO)
    integers, fine = _parse_integers(text, field_starts[:, integer_fields], field_ends[:, integer_fields])
    categories, good = _parse_categories(text, field_starts[:, category_fields], field_ends[:, category_fields])
    right &= (labels <= 1) & (field_ends[:, 0] == starts + 1) & fine & good
    return Rows(labels, integers, categories), right


def _parse_integers(text: Bytes, starts: Places, ends: Places) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return whole numbers, (N, 13), and whether all of a row are some."""
    negative = text[starts] == _MINUS
    digits = ends - starts - negative
    fine = (digits <= _MAX_DIGITS) & ~(negative & (digits == 0))
    first = starts + negative
    values = np.zeros(starts.shape, np.int64)
    for place in range(int(min(digits.max(initial=0), _MAX_DIGITS))):
        inside = place < digits
        digit = text[first + place] - np.uint8(_ZERO)
        fine &= (digit <= 9) | ~inside
        values = np.where(inside, values * 10 + digit, values)
    return np.where(negative, -values, values), fine.all(axis=1)


def _parse_categories(text: Bytes, starts: Places, ends: Places) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return categorical values, (N, 26), and whether all of a row have eight digits or are missing."""
    lengths = ends - starts
    nibbles = _NIBBLES[np.lib.stride_tricks.sliding_window_view(text, _HEX_DIGITS)[starts]]
    values = ((nibbles[..., 0::2] << 4) | nibbles[..., 1::2]).view(">u4")[..., 0].astype(np.uint64)
    good = (lengths == _HEX_DIGITS) & (nibbles.view(np.uint64)[..., 0] & _HIGH_NIBBLES == 0)
    values[~good] = 0
    return values, (good | (lengths == 0)).all(axis=1)


def _column(fields: list[bytes], number: int) -> int:
    """Return the character of a line at which a field begins, from 1."""
    return 1 + sum(len(field) + 1 for field in fields[:number])


def _shown(field: bytes) -> str:
    """Return a field for a message: with what is no text written out, and shortened."""
    text = field.decode(errors="backslashreplace")
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return f"'{text[:_MAX_SHOWN]}{'...' if len(text) > _MAX_SHOWN else ''}'"
