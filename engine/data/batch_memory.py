"""Memory for batches that is used again as soon as nothing refers to the batch that it held.

In a steady run the memory of `prefetch` + 2 batches goes round: those that are ready, the one in the net, and the one
that is being made. A batch that is kept for longer (by a blob's reader, a snapshot, a program) keeps its memory.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
import torch

from mgcaffe.engine.types import Array, Shape


class BatchMemory:
    """Gives one thread arrays with nothing in them yet, in memory that it gave before where that is free.

    For a GPU the memory is pinned, and PyTorch's allocator of pinned memory is what uses it again: it alone knows when
    a copy from it has ended.

    Args:
        pinned: whether batches go to a GPU.
    """

    def __init__(self, pinned: bool = False) -> None:
        self._pinned = pinned
        self._kept: list[Array] = []
        self._given: dict[int, torch.Tensor] = {}

    def empty(self, shape: Shape, dtype: np.dtype[Any]) -> Array:
        """Return an array of this shape, C-contiguous, of undefined values."""
        if self._pinned:
            tensor = torch.empty(shape, dtype=torch.from_numpy(np.empty(0, dtype)).dtype, pin_memory=True)
            self._given[tensor.data_ptr()] = tensor
            return tensor.numpy()
        size = math.prod(shape)
        free = [index for index in range(len(self._kept)) if _references(self._kept, index) == _FREE]
        for index in free:
            if (self._kept[index].size, self._kept[index].dtype) == (size, dtype):
                return self._kept[index].reshape(shape)
        for index in reversed(free):  # batches have another size now
            del self._kept[index]
        array = np.empty(size, dtype)
        self._kept.append(array)
        return array.reshape(shape)

    def tensors(self, arrays: list[Array]) -> list[torch.Tensor]:
        """Return the arrays of a batch as tensors, in pinned memory where that is wanted; its memory is all given."""
        given, self._given = self._given, {}
        return [self._tensor(array, given) for array in arrays]

    def _tensor(self, array: Array, given: dict[int, torch.Tensor]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        if not self._pinned:
            return tensor
        owner = given.get(tensor.data_ptr())
        if owner is None or owner.numel() != tensor.numel():
            return tensor.pin_memory()
        return owner.as_strided(tensor.shape, tensor.stride())


def _references(arrays: list[Array], index: int) -> int:
    """Return how often an array is referred to, as Python counts here."""
    return sys.getrefcount(arrays[index])


_FREE = _references([np.empty(0)], 0)
