"""A table of which a pass reads a few rows, and whose gradient is kept by rows.

Nothing that an iteration does to it costs more where the table has more rows. Its rows may be divided among processes,
each of which has a part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch

from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.types import Array, Shape
from mgcaffe.engine.weights.shards import StoredRows
from mgcaffe.prototxt import BlobProto

VALUES, STEPS, HISTORY = "values", "steps", "history"
"""The tensors that belong to a table."""


class WholeRows(Protocol):
    """A tensor whose rows lie in several processes, for the one that reads and writes files."""

    @property
    def table(self) -> int:
        """The number of its table (`Placement.number`)."""

    @property
    def kind(self) -> str:
        """VALUES, STEPS or HISTORY."""

    @property
    def shape(self) -> Shape:
        """Of all rows."""

    def fetch(self) -> torch.Tensor:
        """Return a copy of all rows in the host's memory."""

    def store(self, start: int, values: Array) -> None:
        """Write the values, in their order, from element number `start` on."""

    def load(self, rows: StoredRows) -> None:
        """Replace all rows by those of a snapshot's shards, of which each process reads its own."""


@dataclass(frozen=True)
class Placement:
    """Where the rows of a table lie.

    Attributes:
        number: of the table, the same in every process.
        rows: those in this process.
        whole: returns, for VALUES, STEPS (what the last update took off each row, or else the gradient) or HISTORY, and
            its shape, the tensor of all rows.
    """

    number: int
    rows: range
    whole: Callable[[str, Shape], WholeRows]


@dataclass(eq=False)
class TableInShards(Parameter):
    """A table in a copy of a net that is to be written, whose values the processes write that have its rows.

    Attributes:
        reference: the blob that stands for the values.
    """

    reference: BlobProto = field(default_factory=BlobProto)


class RowGradient(NamedTuple):
    """What one backward pass adds to a table's gradient: values[items[i]] to row rows[i], for every i.

    Attributes:
        rows: row numbers, int64, in any order and with repetitions.
        values: one vector of a row's length for each item.
        items: one number of a vector for each of `rows`; None: the i-th row gets the i-th vector.
    """

    rows: torch.Tensor
    values: torch.Tensor
    items: torch.Tensor | None = None

    def by_lookup(self) -> torch.Tensor:
        """Return one vector for each of `rows`."""
        return self.values if self.items is None else self.values.index_select(0, self.items)


def join(gradients: Sequence[RowGradient], rows: torch.Tensor | None = None) -> RowGradient:
    """Return what several passes add as what one adds; `rows` takes the place of all their row numbers, if given."""
    if len(gradients) == 1:
        return gradients[0] if rows is None else gradients[0]._replace(rows=rows)
    if rows is None:
        rows = torch.cat([each.rows for each in gradients])
    values = torch.cat([each.values for each in gradients])
    if all(each.items is None for each in gradients):
        return RowGradient(rows, values)
    items, start = [], 0
    for each in gradients:
        mine = torch.arange(len(each.rows), device=rows.device) if each.items is None else each.items
        items.append(mine + start)
        start += len(each.values)
    return RowGradient(rows, values, torch.cat(items))


def merge(gradient: RowGradient) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows that a gradient is added to, ascending, and the sum for each (new tensors)."""
    rows, order = torch.sort(gradient.rows, stable=True)
    unique, counts = torch.unique_consecutive(rows, return_counts=True)
    if gradient.items is not None:
        order = gradient.items.index_select(0, order)
    starts = counts.cumsum(0).sub_(counts)
    # Bags of the gradients of one row each; the operator adds them up without a copy of each.
    sums = torch.ops.aten._embedding_bag_forward_only(gradient.values, order, starts)[0]
    return unique, sums


@dataclass(eq=False)
class RowParameter(Parameter):
    """A parameter of shape (rows, length) whose gradient is a list of what backward passes added to which rows.

    It has no `diff`, and lies outside the arena's flat buffers. One that shares another's values (`owner`) adds to that
    one's gradient.

    Attributes:
        placement: where its rows lie; None: all of them here. Else `data` has the rows of this process, and gradients
            and histories count their rows from the first of these on.
    """

    placement: Placement | None = None
    _gradients: list[RowGradient] = field(default_factory=list, repr=False)

    @property
    def shape_here(self) -> Shape:
        """The shape of what lies in this process."""
        return self.shape if self.placement is None else (len(self.placement.rows), self.shape[1])

    def share(self, other: RowParameter) -> None:
        """Use the values of another table of this shape."""
        self.data, self.placement = other.data, other.placement

    @property
    def whole_values(self) -> WholeRows | None:
        """All values, where they lie in several processes."""
        return None if self.placement is None else self.placement.whole(VALUES, self.shape)

    @property
    def gradients(self) -> list[RowGradient]:
        """What backward passes have added since the gradient was last forgotten."""
        owner = self.owner
        return self._gradients if owner is None else owner.gradients  # type: ignore[attr-defined] # a RowParameter too

    @property
    def fresh(self) -> bool:
        """Whether the gradient is zero. Setting it to True forgets what was added."""
        return not self.gradients

    @fresh.setter
    def fresh(self, value: bool) -> None:
        if value:
            self.gradients.clear()

    def add_rows(self, rows: torch.Tensor, values: torch.Tensor, items: torch.Tensor | None = None) -> None:
        """Add to the gradient; it keeps the tensors. Arguments as for `RowGradient`."""
        self.gradients.append(RowGradient(rows, values, items))

    def merged(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the rows that were looked up, ascending, and the sum of each one's gradients (new tensors)."""
        length = self.shape[1]
        if not self.gradients:
            return torch.zeros(0, dtype=torch.int64, device=self.data.device), self.data.new_zeros((0, length))
        return merge(join(self.gradients))

    def replace_gradient(self, rows: torch.Tensor, values: torch.Tensor) -> None:
        """Put other values in the place of the gradient."""
        self.gradients[:] = [RowGradient(rows, values)]

    def clear_diff(self) -> None:
        """Set the gradient to zero."""
        self.fresh = True

    def gradient_values(self) -> torch.Tensor:
        """Return the gradient of the rows that were looked up, where all others are zero."""
        return self.merged()[1]

    def dense_diff(self) -> torch.Tensor:
        """Return the gradient as a new tensor of the size of `data`, for those who look at it between iterations."""
        rows, values = self.merged()
        return self.data.new_zeros(self.data.shape).index_copy_(0, rows, values)
