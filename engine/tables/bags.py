"""Bags of row numbers: what one layer looks up in a table in one pass, and the sums of the rows of each bag."""

from __future__ import annotations

from typing import NamedTuple

import torch

from mgcaffe.engine.kernels.rows import read_rows_of


class Bags(NamedTuple):
    """The look-ups of one layer, bag after bag.

    Attributes:
        ids: row numbers, int64.
        size: how many bags there are.
        lengths: how many ids each bag has, int64; None: one each.
        offsets: where each bag begins among the ids; None where `lengths` is.
    """

    ids: torch.Tensor
    size: int
    lengths: torch.Tensor | None = None
    offsets: torch.Tensor | None = None

    @classmethod
    def of_lengths(cls, ids: torch.Tensor, lengths: torch.Tensor | None) -> Bags:
        """Return the bags that have these lengths; None: each id is one."""
        if lengths is None:
            return cls(ids, ids.numel())
        return cls(ids, lengths.numel(), lengths, lengths.cumsum(0).sub_(lengths))

    def items(self) -> torch.Tensor | None:
        """Return for each id the number of its bag; None: the i-th id is bag i."""
        if self.lengths is None:
            return None
        return torch.repeat_interleave(self.lengths, output_size=self.ids.numel())

    def equals(self, other: Bags) -> bool:
        """Return whether the other bags hold the same ids."""
        if (self.lengths is None) != (other.lengths is None) or not torch.equal(self.ids, other.ids):
            return False
        return self.lengths is None or other.lengths is None or torch.equal(self.lengths, other.lengths)

    def averaged(self, sums: torch.Tensor) -> torch.Tensor:
        """Return sums over bags (bags x any length) divided by how many ids each bag has; empty bags stay 0."""
        return sums if self.lengths is None else sums / self.lengths.clamp(min=1)[:, None]


def pooled(table: torch.Tensor, bags: Bags, *, is_mean: bool = False) -> torch.Tensor:
    """Return the sum (or mean) of the rows of each bag (bags x the length of a row), 0 for an empty bag."""
    if bags.lengths is None:
        return read_rows_of(table, bags.ids)
    if not bags.ids.numel():
        return table.new_zeros((bags.size, table.shape[1]))
    sums: torch.Tensor = torch.ops.aten._embedding_bag_forward_only(table, bags.ids, bags.offsets, False, int(is_mean))[
        0
    ]
    return sums
