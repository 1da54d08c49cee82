"""Whole tables for rank 0, which alone reads and writes files, while each rank has a part of their rows.

    tables.lead(lambda: snapshots.take(progress))      collective: rank 0 works, the others answer what it asks for

A table, history or step is fetched when it is needed and by pieces, so that rank 0 has no more of them at a time than
what it keeps itself, and no other rank more than a piece.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch

from mgcaffe.comm import Communicator
from mgcaffe.comm.tables.all_to_all import all_to_all
from mgcaffe.comm.tables.assignment import Assignment
from mgcaffe.engine.types import Array, Shape

T = TypeVar("T")

_PIECE = 1 << 22  # elements that travel at once


@dataclass(frozen=True)
class _Order:
    """What rank 0 asks of all ranks: to send it rows of a table, or (`stores`) to take them."""

    table: int
    kind: str
    stores: bool
    start: int
    count: int


class WholeTables:
    """Lets rank 0 fetch and store what lies on all ranks.

    Args:
        communicator: the ranks, used for nothing else at the same time.
        assignment: which rank has which rows of each table.
        tensor_of: returns, by a table's number and a kind, the tensor of the rows that lie here.
    """

    def __init__(
        self, communicator: Communicator, assignment: Assignment, tensor_of: Callable[[int, str], torch.Tensor]
    ) -> None:
        self._communicator = communicator
        self._assignment = assignment
        self._tensor_of = tensor_of
        self._leads = False
        self._current: tuple[int, str, torch.Tensor] | None = None

    def lead(self, work: Callable[[], T]) -> T | None:
        """Run `work` on rank 0 while the other ranks serve it; return its result there, None elsewhere; collective.

        An error of rank 0 leaves the others waiting, as in any collective call that a rank doesn't come to.
        """
        if self._communicator.rank:
            while (order := self._communicator.broadcast_object(None)) is not None:
                self._obey(order, None)
            self._current = None
            return None
        self._leads = True
        try:
            result = work()
        finally:
            self._leads, self._current = False, None
        self._communicator.broadcast_object(None)
        return result

    def fetch(self, table: int, kind: str, shape: Shape) -> torch.Tensor:
        """Return all rows, on rank 0 inside of `lead`."""
        whole = torch.empty(shape, dtype=self._tensor(table, kind).dtype)
        flat = whole.view(-1).numpy()
        for start in range(0, flat.size, _PIECE):
            self._order(_Order(table, kind, False, start, min(_PIECE, flat.size - start)), flat[start : start + _PIECE])
        return whole

    def store(self, table: int, kind: str, start: int, values: Array) -> None:
        """Write values into the rows from element `start` on, on rank 0 inside of `lead`."""
        for offset in range(0, values.size, _PIECE):
            piece = values[offset : offset + _PIECE]
            self._order(_Order(table, kind, True, start + offset, piece.size), piece)

    def _order(self, order: _Order, piece: Array) -> None:
        assert self._leads, "rows of other ranks are read and written inside of `lead`"
        self._communicator.broadcast_object(order)
        self._obey(order, piece)

    def _obey(self, order: _Order, piece: Array | None) -> None:
        """Move what lies on each rank of a piece of a tensor between it and rank 0, which gives the piece."""
        communicator = self._communicator
        tensor = self._tensor(order.table, order.kind)
        overlaps = self._overlaps(order, tensor)
        here = next((each for each in overlaps if each.owner == communicator.rank), None)
        flat = tensor.view(-1)
        dtype = np.dtype(str(tensor.dtype).removeprefix("torch."))
        nothing = np.empty(0, dtype)
        mine = flat[here.begin : here.end] if here is not None else flat[:0]
        counts = [0] * communicator.size
        if order.stores:
            parts = [nothing] * communicator.size
            if piece is not None:
                with np.errstate(all="ignore"):  # a double may be too large for a float: it becomes infinite
                    values = piece.astype(dtype, copy=False)
                for each in overlaps:
                    parts[each.owner] = values[each.offset : each.offset + each.end - each.begin]
            counts[0] = mine.numel()
            mine.copy_(torch.from_numpy(all_to_all(communicator, parts, counts)[0]))
            return
        if piece is not None:
            for each in overlaps:
                counts[each.owner] = each.end - each.begin
        received = all_to_all(communicator, [mine.cpu().numpy(), *[nothing] * (communicator.size - 1)], counts)
        if piece is not None:
            for each in overlaps:
                piece[each.offset : each.offset + each.end - each.begin] = received[each.owner]

    def _tensor(self, table: int, kind: str) -> torch.Tensor:
        """Return the rows that lie here; kept from piece to piece, since some kinds are computed."""
        if self._current is None or self._current[:2] != (table, kind):
            self._current = table, kind, self._tensor_of(table, kind)
        return self._current[2]

    def _overlaps(self, order: _Order, tensor: torch.Tensor) -> list[_Overlap]:
        """Return what each rank has of elements `start` to `start + count`."""
        width = tensor[:1].numel() if tensor.shape[0] else int(np.prod(tensor.shape[1:]))
        found = []
        for part in self._assignment[order.table]:
            first, last = part.first * width, part.last * width
            begin, end = max(order.start, first), min(order.start + order.count, last)
            if begin < end:
                found.append(_Overlap(part.owner, begin - first, end - first, begin - order.start))
        return found


@dataclass(frozen=True)
class _Overlap:
    """Elements `begin` to `end` of an owner's part, which stand at `offset` in a piece."""

    owner: int
    begin: int
    end: int
    offset: int


@dataclass(frozen=True)
class WholeTensor:
    """One tensor of a table, as rank 0 sees it; see `WholeRows`."""

    tables: WholeTables
    table: int
    kind: str
    shape: Shape

    def fetch(self) -> torch.Tensor:
        """Return a copy of all rows in the host's memory."""
        return self.tables.fetch(self.table, self.kind, self.shape)

    def store(self, start: int, values: Array) -> None:
        """Write the values, in their order, from element number `start` on."""
        self.tables.store(self.table, self.kind, start, values)
