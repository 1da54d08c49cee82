"""What a server of tables is given: the rows that it holds, and files of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy

from mgcaffe.comm.tables.messages import Bags, Request


class Saving(Protocol):
    """Rows that are being written to a file."""

    def result(self, patience_s: float | None = 0) -> bytes | None:
        """Return what the answer is, or None if they are not written within so many seconds (None: wait for ever)."""


class HeldTables(Protocol):
    """The rows of tables that a server holds, by the tables' numbers; used by one thread at a time.

    Attributes:
        dtype: of all their numbers.
        rows: how many rows of each table it holds; 0 of those that it has no part in.
        widths: how many numbers a row has.
    """

    dtype: numpy.dtype
    rows: Sequence[int]
    widths: Sequence[int]

    def look_up(self, requests: Sequence[Request], rows: numpy.ndarray) -> numpy.ndarray:
        """Return the sums of the rows of all bags, request after request, flat.

        Args:
            requests: what is looked up; the rows are in range.
            rows: of all of them, one after another.
        """

    def update(self, gradients: Sequence[tuple[int, Bags, numpy.ndarray]], rate: float, scale: float) -> None:
        """Update tables by what all of an iteration's look-ups add up to.

        Args:
            gradients: (table, bags, the gradients of their sums, bags x width); kept no longer than the call.
            rate: the solver's learning rate.
            scale: a factor on every gradient.
        """

    def numbers(self, table: int, what: int) -> numpy.ndarray:
        """Return the values (`what` 0) or a history of all rows, themselves; `Block` says what `what` means.

        Raises:
            CommError: there is no such history.
        """

    def save(self, order: bytes) -> Saving:
        """Begin to write all rows, as they are now, as an order says; what fails is part of the answer."""

    def load(self, order: bytes) -> bytes:
        """Replace rows by those in files, and return the answer; what fails is part of it."""
