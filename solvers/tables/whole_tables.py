"""Whole tables for rank 0, which alone reads and writes files, while each rank has a part of their rows.

    tables.lead(lambda: snapshots.take(progress))      collective: rank 0 works, the others answer what it asks for

A table, history or step is fetched when it is needed and by pieces, so that rank 0 has no more of them at a time than
what it keeps itself, and no other rank more than a piece. Shards are written and read by each rank itself.
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
from mgcaffe.engine.weights.shards import StoredRows
from mgcaffe.errors import NetError
from mgcaffe.solvers.tables.rank_shards import RankShards
from mgcaffe.solvers.tables.shard_holder import SHARED_FOLDER, LoadOrder, SaveOrder, ShardFile, ShardHolder

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
    """Lets rank 0 fetch and store what lies on all ranks, and all of them write and read shards.

    Args:
        communicator: the ranks, used for nothing else at the same time.
        assignment: which rank has which rows of each table.
        holder: writes and reads the rows that lie here.
    """

    def __init__(self, communicator: Communicator, assignment: Assignment, holder: ShardHolder) -> None:
        self._communicator = communicator
        self._assignment = assignment
        self._holder = holder
        self._shards: RankShards | None = None
        self._leads = False
        self._current: tuple[int, str, torch.Tensor] | None = None

    def lead(self, work: Callable[[], T]) -> T | None:
        """Run `work` on rank 0 while the other ranks serve it; return its result there, None elsewhere; collective.

        An error of rank 0 leaves the others waiting, as in any collective call that a rank doesn't come to.
        """
        if self._communicator.rank:
            while (order := self._communicator.broadcast_object(None)) is not None:
                if isinstance(order, _Order):
                    self._obey(order, None)
                elif isinstance(order, SaveOrder):
                    assert self._shards is not None
                    self._shards.begin(order)
                else:
                    self._load(order)
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

    def share_results(self, communicator: Communicator) -> None:
        """Give ranks what they tell rank 0 by that shards are written, a communicator for this alone; on all ranks."""
        self._shards = RankShards(communicator, self._holder)

    def save(self, order: SaveOrder) -> Callable[[], list[ShardFile]]:
        """Let all ranks write their shards, on rank 0 inside of `lead`; see `TableHolders`."""
        assert self._shards is not None
        self._tell(order)
        return self._shards.begin(order)

    def load(self, table: int, kind: str, rows: StoredRows) -> None:
        """Let all ranks read their rows, on rank 0 inside of `lead`.

        Raises:
            NetError: one cannot.
        """
        order = LoadOrder(table, kind, rows)
        self._tell(order)
        self._load(order)

    def close(self) -> None:
        """Wait for the shards that are being written."""
        if self._shards is not None:
            self._shards.close()

    def _load(self, order: LoadOrder) -> None:
        problems = self._communicator.gather(self._holder.load(order))
        for problem in filter(None, problems or ()):
            raise NetError(problem, hint=SHARED_FOLDER)

    def _tell(self, order: _Order | SaveOrder | LoadOrder) -> None:
        assert self._leads, "rows of other ranks are read and written inside of `lead`"
        self._communicator.broadcast_object(order)

    def _order(self, order: _Order, piece: Array) -> None:
        self._tell(order)
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
            self._current = table, kind, self._holder.tensor_of(table, kind)
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

    def load(self, rows: StoredRows) -> None:
        """Let each rank read its rows from shards."""
        self.tables.load(self.table, self.kind, rows)
