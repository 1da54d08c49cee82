"""Assigns the rows of tables to the ranks that own them: pure functions, the same result on every rank.

The load of a table is the rows that a pass looks up times their length, or, where that is not known of every table,
all its rows times their length. Tables are assigned in the order of their loads, the largest first, each to the owner
with the least load so far that has memory for it. A table whose load alone is above an owner's fair share, or for which
no owner has memory, is divided among all owners by rows.

A table that is divided costs little more than one that isn't: bags of one id travel to one owner either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mgcaffe.errors import CommError


@dataclass(frozen=True)
class TableLoad:
    """A table that is to be assigned.

    Attributes:
        rows: how many there are.
        length: of a row.
        row_bytes: memory that a row takes, the solver's history of it included.
        looked_up: rows that a pass looks up; None: not known.
    """

    rows: int
    length: int
    row_bytes: int
    looked_up: float | None = None

    @property
    def bytes(self) -> int:
        """Memory that the table takes."""
        return self.rows * self.row_bytes


@dataclass(frozen=True)
class RowRange:
    """Rows `first` to `last` (exclusive) of a table, all at one owner."""

    owner: int
    first: int
    last: int


Assignment = Sequence[Sequence[RowRange]]
"""For each table its ranges, by ascending rows, each of another owner; together they are all rows."""


class TooLargeError(CommError):
    """There is no memory for a table beside the others.

    Attributes:
        table: its number.
        free: the bytes that all owners have left for it.
    """

    def __init__(self, table: int, free: int) -> None:
        super().__init__(f"table {table} is too large: {free} bytes are left for it")
        self.table, self.free = table, free


def assign_tables(tables: Sequence[TableLoad], memory: Sequence[int]) -> list[list[RowRange]]:
    """Assign tables to owners.

    Args:
        tables: the tables.
        memory: the bytes that each owner has for tables.

    Raises:
        TooLargeError: there is too little memory.
    """
    loads = table_loads(tables)
    fair = sum(loads) / len(memory)
    carried = [0.0] * len(memory)
    free = list(memory)
    ranges: list[list[RowRange]] = [[] for _ in tables]
    for number in sorted(range(len(tables)), key=lambda each: (-loads[each], each)):
        table = tables[number]
        if table.bytes > sum(free):
            raise TooLargeError(number, sum(free))
        roomy = [owner for owner, left in enumerate(free) if table.bytes <= left]
        if roomy and (loads[number] <= fair or table.rows < 2):
            owner = min(roomy, key=lambda each: (carried[each], each))
            ranges[number] = [RowRange(owner, 0, table.rows)]
        else:
            ranges[number] = _divided(table, number, free)
        for part in ranges[number]:
            rows = part.last - part.first
            carried[part.owner] += loads[number] * rows / max(table.rows, 1)
            free[part.owner] -= rows * table.row_bytes
    return ranges


def table_loads(tables: Sequence[TableLoad]) -> list[float]:
    """Return the load of each table, on one scale for all."""
    if all(table.looked_up is not None for table in tables):
        return [(table.looked_up or 0.0) * table.length for table in tables]
    return [float(table.rows * table.length) for table in tables]


def _divided(table: TableLoad, number: int, free: Sequence[int]) -> list[RowRange]:
    """Divide a table evenly among the owners, as far as each has memory.

    Raises:
        TooLargeError: what is free is enough, but not in whole rows.
    """
    rows_left = [left // max(table.row_bytes, 1) for left in free]
    counts = [0] * len(free)
    rest = table.rows
    while rest:
        open_to = [owner for owner in range(len(free)) if counts[owner] < rows_left[owner]]
        if not open_to:
            raise TooLargeError(number, sum(free))
        share, more = divmod(rest, len(open_to))
        for place, owner in enumerate(open_to):
            given = min(share + (place < more), rows_left[owner] - counts[owner])
            counts[owner] += given
            rest -= given
    ranges, first = [], 0
    for owner, count in enumerate(counts):
        if count:
            ranges.append(RowRange(owner, first, first + count))
            first += count
    return ranges
