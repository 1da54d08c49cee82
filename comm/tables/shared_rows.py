"""The rows that a process holds of tables, for its thread that serves others and for those that train beside it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence

import numpy

from mgcaffe.comm.tables.held_tables import HeldTables, Saving
from mgcaffe.comm.tables.messages import Bags, Block, LookUp, Request
from mgcaffe.errors import CommError


class SharedRows:
    """Rows that one thread at a time uses; requests of other processes are checked.

    Args:
        tables: what has them.
    """

    def __init__(self, tables: HeldTables) -> None:
        self._lock = threading.Lock()
        self._tables = tables

    @property
    def dtype(self) -> numpy.dtype:
        """The type of all numbers."""
        return self._tables.dtype

    @property
    def widths(self) -> Sequence[int]:
        """How many numbers a row of each table has."""
        return self._tables.widths

    def look_up(self, requests: Sequence[Request], rows: numpy.ndarray) -> numpy.ndarray:
        """Return the sums of all bags; see `HeldTables`."""
        with self._lock:
            return self._tables.look_up(requests, rows)

    def update(self, gradients: Sequence[tuple[int, Bags, numpy.ndarray]], rate: float, scale: float) -> None:
        """Update the rows; see `HeldTables`."""
        with self._lock:
            self._tables.update(gradients, rate, scale)

    def read(self, block: Block) -> numpy.ndarray:
        """Return a copy of a block's numbers.

        Raises:
            CommError: there is no such block.
        """
        with self._lock:
            return self._numbers(block).copy()

    def write(self, block: Block, values: numpy.ndarray) -> None:
        """Replace a block's numbers.

        Raises:
            CommError: there is no such block.
        """
        with self._lock:
            self._numbers(block)[...] = values

    def save(self, order: bytes) -> Saving:
        """Begin to write all rows; see `HeldTables`."""
        with self._lock:
            return self._tables.save(order)

    def load(self, order: bytes) -> bytes:
        """Replace rows by those in files; see `HeldTables`."""
        with self._lock:
            return self._tables.load(order)

    def _numbers(self, block: Block) -> numpy.ndarray:
        """Return a view of a block's numbers."""
        if not 0 <= block.table < len(self._tables.rows):
            raise CommError(f"it asks for table {block.table}, and there are {len(self._tables.rows)}")
        numbers = self._tables.numbers(block.table, block.what).reshape(-1)
        if not (0 <= block.start and 0 <= block.count <= len(numbers) - block.start):
            raise CommError(
                f"it asks for {block.count} number(s) from {block.start} on of table {block.table}, of which"
                f" {len(numbers)} are here"
            )
        return numbers[block.start : block.start + block.count]

    def check(self, look_up: LookUp) -> None:
        """Make sure that rows exist.

        Raises:
            CommError: they do not.
        """
        held = self._tables.rows
        for table, _, _ in look_up.requests:
            if not 0 <= table < len(held):
                raise CommError(f"it looks up table {table}, and there are {len(held)}")
        asked = [(each.table, len(each.bags.rows)) for each in look_up.requests if len(each.bags.rows)]
        if not asked:
            return
        starts = list(itertools.accumulate((count for _, count in asked[:-1]), initial=0))
        # As a number without a sign a negative one is larger than all others.
        most = numpy.maximum.reduceat(look_up.rows.view(numpy.uint64), starts).tolist()
        for (table, count), start, largest in zip(asked, starts, most, strict=True):
            if largest >= held[table]:
                rows = look_up.rows[start : start + count]
                raise CommError(
                    f"it looks up rows {int(rows.min())} to {int(rows.max())} of table {table}, of which"
                    f" {held[table]} are here"
                )
