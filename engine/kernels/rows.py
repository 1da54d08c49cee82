"""Reading and adding to single rows of a large matrix, which is a matter of waiting for memory.

Measured on one core of an AMD EPYC, rows of 16 float32, 26 matrices of 10^5 rows in turns, so that caches are cold:
2048 rows read in 60 us by index_select and in 31 us as bags of one (that operator prefetches); 2048 additions, a third
of them to rows that come again, in 220 us by index_put_ and in 100 us by scatter_add_ (that operator sorts them first).
Below some 500 rows the plain operators are faster.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

import torch

_MANY_TO_READ = 1024
_MANY_TO_ADD = 512


def read_rows_of(matrix: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Return a copy of the rows with these numbers (int64)."""
    if matrix.device.type != "cpu" or rows.numel() < _MANY_TO_READ or matrix.dim() != 2:
        return matrix.index_select(0, rows)
    bags: tuple[torch.Tensor, ...] = torch.ops.aten._embedding_bag_forward_only(matrix, rows, _numbers(rows.numel()))
    return bags[0]


@functools.lru_cache(maxsize=4)
def _numbers(count: int) -> torch.Tensor:
    """Return 0 to `count` - 1; a batch has mostly as many rows as the one before."""
    return torch.arange(count)


def add_to_rows(matrix: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
    """Add values[i] to matrix[rows[i]] for every i, in an order that does not vary on any device."""
    if matrix.device.type != "cpu" or rows.numel() < _MANY_TO_ADD:
        matrix.index_put_((rows,), values, accumulate=True)
    else:
        matrix.scatter_add_(0, rows[:, None].expand_as(values), values)


@dataclass(frozen=True)
class Stack:
    """Matrices of one row length that lie in one storage, as one of which each is some rows.

    Attributes:
        parts: the matrices, or vectors of single numbers.
        whole: all rows from the first part's to the last one's, whatever lies between.
        starts: where the parts begin in it.
    """

    parts: tuple[torch.Tensor, ...]
    whole: torch.Tensor
    starts: torch.Tensor

    def is_of(self, parts: Sequence[torch.Tensor]) -> bool:
        """Return whether these tensors are its parts."""
        return len(parts) == len(self.parts) and all(map(operator.is_, parts, self.parts))

    def rows(self, rows: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return row numbers, a vector for each part, as one vector of rows of the whole (a new tensor)."""
        joined = torch.cat(list(rows))
        counts = [each.numel() for each in rows]
        if counts.count(counts[0]) == len(counts):
            joined.view(len(counts), -1).add_(self.starts[:, None])
            return joined
        lengths = torch.tensor(counts, device=joined.device)
        return joined.add_(self.starts.repeat_interleave(lengths, output_size=joined.numel()))


def stack(parts: Sequence[torch.Tensor]) -> Stack | None:
    """Return the matrices as one, of which nothing is copied; None where they do not lie in one storage."""
    first = parts[0]
    shape = first.shape[1:]
    length = shape.numel()
    storage = first.untyped_storage().data_ptr()
    for each in parts:
        fits = each.shape[1:] == shape and each.dtype == first.dtype and each.is_contiguous()
        if not fits or each.untyped_storage().data_ptr() != storage:
            return None
    offsets = [each.storage_offset() for each in parts]
    low, high = min(offsets), max(offset + each.numel() for offset, each in zip(offsets, parts, strict=True))
    if not length or any((offset - low) % length for offset in offsets):
        return None
    whole = first.as_strided(((high - low) // length, *shape), first.stride(), low)
    starts = torch.tensor([(offset - low) // length for offset in offsets], device=first.device)
    return Stack(tuple(parts), whole, starts)
