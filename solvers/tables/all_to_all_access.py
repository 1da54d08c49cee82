"""Look-ups and gradients of tables that are divided among ranks in step, exchanged by all-to-all.

All look-ups of a group travel together, in three exchanges: how many bags and ids go to each owner; lengths and ids;
the sums that come back. Gradients take one more, since the owners remember what was looked up. A bag without an id at
an owner is not sent there.

Gradients are divided by the number of ranks, as those of dense parameters are: the mean over the ranks, which is what
one process with a batch as large as all together computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from mgcaffe.comm import Communicator
from mgcaffe.comm.tables.all_to_all import Array, all_to_all
from mgcaffe.comm.tables.assignment import Assignment
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.engine.tables.access import LookUp, OwnedRows
from mgcaffe.engine.tables.bags import Bags


class AllToAllAccess:
    """Reads the tables of nets and takes their gradients; every method is a collective call.

    Args:
        communicator: the ranks, used for nothing else.
        assignment: which rank has which rows of each table.
        tables: by number; their rows that lie here.
    """

    def __init__(self, communicator: Communicator, assignment: Assignment, tables: Sequence[RowParameter]) -> None:
        self.communicator = communicator
        self.assignment = assignment
        self.owned = OwnedRows(tables)
        self.dtype = tables[0].data.dtype
        self.device = tables[0].data.device
        self._ends = [torch.tensor([part.last for part in ranges[:-1]], dtype=torch.int64) for ranges in assignment]
        self._routes: dict[tuple[int, ...], list[list[tuple[int, int]]]] = {}

    def look_up(self, look_ups: Sequence[LookUp]) -> _Exchange:
        """Exchange the ids of all look-ups, and the sums."""
        return _Exchange(self, look_ups)

    def gradients(self) -> Sequence[torch.Tensor]:
        """Return none: they lie in the tables of their owners."""
        return ()

    def forget_gradients(self) -> None:
        """Do nothing."""

    def update(self, rate: float, scale: float) -> None:
        """Do nothing: each rank updates its own rows."""

    def routes(self, look_ups: Sequence[LookUp]) -> list[list[tuple[int, int]]]:
        """Return for each owner the look-ups that concern it, and which of the table's ranges it has."""
        tables = tuple(each.table for each in look_ups)
        if tables not in self._routes:
            routes: list[list[tuple[int, int]]] = [[] for _ in range(self.communicator.size)]
            for number, table in enumerate(tables):
                for place, part in enumerate(self.assignment[table]):
                    routes[part.owner].append((number, place))
            self._routes[tables] = routes
        return self._routes[tables]

    def questions(self, look_up: LookUp) -> list[_Question]:
        """Divide a look-up among the owners of its table's ranges."""
        ranges, bags = self.assignment[look_up.table], look_up.bags
        ids, lengths = bags.ids.cpu(), bags.lengths.cpu() if bags.lengths is not None else None
        if len(ranges) == 1:
            if lengths is None or bool(lengths.all()):
                return [_Question(ids, lengths, None)]
            nonempty = lengths.nonzero().view(-1)
            return [_Question(ids, lengths[nonempty], nonempty)]
        which = torch.bucketize(ids, self._ends[look_up.table], right=True)
        bag_of = None if lengths is None else torch.repeat_interleave(lengths, output_size=ids.numel())
        found = []
        for place, part in enumerate(ranges):
            at = (which == place).nonzero().view(-1)
            local = ids[at] - part.first
            if bag_of is None:
                found.append(_Question(local, None, at))
            else:
                numbers, counts = torch.unique_consecutive(bag_of[at], return_counts=True)
                found.append(_Question(local, counts, numbers))
        return found


@dataclass(frozen=True)
class _Question:
    """What a look-up asks of one owner.

    Attributes:
        ids: numbers of rows, counted from the owner's first.
        lengths: of the bags, none of them empty; None: one id each.
        bags: their numbers in the look-up; None: all in order.
    """

    ids: torch.Tensor
    lengths: torch.Tensor | None
    bags: torch.Tensor | None

    @property
    def size(self) -> int:
        """How many bags there are."""
        return self.ids.numel() if self.lengths is None else self.lengths.numel()

    def counts(self) -> list[int]:
        return [0 if self.lengths is None else self.lengths.numel(), self.ids.numel()]

    def numbers(self) -> list[torch.Tensor]:
        return [self.ids] if self.lengths is None else [self.lengths, self.ids]


@dataclass(frozen=True)
class _Asked:
    """What all ranks ask of this one in a look-up.

    Attributes:
        table: its number.
        length: of a row.
        trains: whether gradients will come.
        bags: those of all ranks, by rank.
        sizes: how many bags each rank has.
    """

    table: int
    length: int
    trains: bool
    bags: Bags
    sizes: list[int]


class _Exchange:
    """Look-ups that were made at once; see `LookedUp`."""

    def __init__(self, access: AllToAllAccess, look_ups: Sequence[LookUp]) -> None:
        self._access = access
        self._look_ups = look_ups
        self._routes = access.routes(look_ups)
        self._questions = [access.questions(each) for each in look_ups]
        self._asked = self._ask()

    def sums(self) -> list[torch.Tensor]:
        """Exchange the sums, and add up those of tables that several ranks have a part of."""
        access = self._access
        mine = [access.owned.look_up(each.table, each.bags).cpu().split(each.sizes) for each in self._asked]
        replies = [_joined([parts[rank] for parts in mine], access.dtype) for rank in range(access.communicator.size)]
        sizes = [
            [self._questions[number][place].size * self._look_ups[number].length for number, place in route]
            for route in self._routes
        ]
        answers = all_to_all(access.communicator, replies, [sum(each) for each in sizes])
        found: list[list[tuple[torch.Tensor | None, torch.Tensor]]] = [[] for _ in self._look_ups]
        for route, answer, each in zip(self._routes, answers, sizes, strict=True):
            for (number, place), part in zip(route, torch.from_numpy(answer).split(each), strict=True):
                sums = part.view(-1, self._look_ups[number].length)
                found[number].append((self._questions[number][place].bags, sums))
        return [
            _together(look_up, parts).to(access.device) for look_up, parts in zip(self._look_ups, found, strict=True)
        ]

    def add_gradients(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Exchange the gradients, and keep those of the rows that lie here."""
        access, size = self._access, self._access.communicator.size
        scaled = [None if each is None else (each / size).cpu() for each in gradients]
        parts = []
        for route in self._routes:
            rows = [(scaled[number], self._questions[number][place].bags) for number, place in route]
            wanted = [each if bags is None else each.index_select(0, bags) for each, bags in rows if each is not None]
            parts.append(_joined(wanted, access.dtype))
        training = [each for each in self._asked if each.trains]
        counts = [sum(each.sizes[rank] * each.length for each in training) for rank in range(size)]
        received = all_to_all(access.communicator, parts, counts)
        by_rank = [
            torch.from_numpy(part).split([each.sizes[rank] * each.length for each in training])
            for rank, part in enumerate(received)
        ]
        for each, values in zip(training, zip(*by_rank, strict=True), strict=True):
            gradient = torch.cat(values).view(-1, each.length).to(access.device)
            access.owned.add_gradients(each.table, each.bags, gradient)

    def drop(self) -> None:
        """Do nothing."""

    def _ask(self) -> list[_Asked]:
        """Exchange counts, lengths and ids; return what is asked of this rank, look-up by look-up."""
        access, mine = self._access, self._routes[self._access.communicator.rank]
        size = access.communicator.size
        counts, numbers = [], []
        for route in self._routes:
            questions = [self._questions[number][place] for number, place in route]
            counts.append(np.array([each.counts() for each in questions], np.int64).reshape(-1))
            numbers.append(_joined([part for each in questions for part in each.numbers()], torch.int64))
        counted = [part.reshape(-1, 2) for part in all_to_all(access.communicator, counts, [2 * len(mine)] * size)]
        received = all_to_all(access.communicator, numbers, [int(part.sum()) for part in counted])
        by_rank = [
            torch.from_numpy(part).split(sizes.reshape(-1).tolist())
            for part, sizes in zip(received, counted, strict=True)
        ]
        found = []
        for place, (number, _) in enumerate(mine):
            look_up = self._look_ups[number]
            lengths = [parts[2 * place] for parts in by_rank]
            ids = [parts[2 * place + 1] for parts in by_rank]
            sizes = [part.numel() or of.numel() for part, of in zip(lengths, ids, strict=True)]
            found.append(_Asked(look_up.table, look_up.length, look_up.trains, self._bags_of_all(ids, lengths), sizes))
        return found

    def _bags_of_all(self, ids: Sequence[torch.Tensor], lengths: Sequence[torch.Tensor]) -> Bags:
        """Return the bags of all ranks as those of one; no lengths: one id each."""
        together = torch.cat(list(ids)).to(self._access.device)
        if not any(part.numel() for part in lengths):
            return Bags.of_lengths(together, None)
        each = [part if part.numel() else torch.ones_like(of) for part, of in zip(lengths, ids, strict=True)]
        return Bags.of_lengths(together, torch.cat(each).to(self._access.device))


def _together(look_up: LookUp, parts: Sequence[tuple[torch.Tensor | None, torch.Tensor]]) -> torch.Tensor:
    """Return the sums of a look-up's bags from those of each owner with the numbers of their bags (None: all)."""
    first, sums = parts[0]
    if len(parts) == 1 and first is None:
        return sums
    total = sums.new_zeros((look_up.bags.size, look_up.length))
    for bags, sums in parts:
        assert bags is not None
        total.index_add_(0, bags, sums)
    return total


def _joined(parts: Sequence[torch.Tensor], dtype: torch.dtype) -> Array:
    """Return the values of all tensors, flat; of none, an array of the type."""
    flat = [part.reshape(-1) for part in parts]
    values: Array = (torch.cat(flat) if flat else torch.zeros(0, dtype=dtype)).numpy()
    return values
