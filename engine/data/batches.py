"""What a data layer's reader promises, and the form in which it has to give a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mgcaffe.engine.data import random_numbers
from mgcaffe.engine.data.batch_memory import BatchMemory
from mgcaffe.engine.types import Array, Shape


@dataclass(frozen=True)
class BatchForm:
    """How a batch has to look.

    Attributes:
        dtype: float32 or float64.
        channels_last: arrays N x C x H x W lie in memory as N x H x W x C.
        stream: what the random numbers of the layer derive from.
        memory: where its arrays come from; None for new memory each time.
    """

    dtype: np.dtype[Any]
    channels_last: bool = False
    stream: int = 0
    memory: BatchMemory | None = None

    def empty(self, shape: Shape) -> Array:
        """Return an array for a batch with nothing in it yet."""
        if self.memory is None:
            return empty(shape, self.dtype, self.channels_last)
        if not self.channels_last or len(shape) != 4:
            return self.memory.empty(shape, self.dtype)
        count, channels, height, width = shape
        return self.memory.empty((count, height, width, channels), self.dtype).transpose(0, 3, 1, 2)


class Reader(Protocol):
    """Gives batches of records by their numbers. It is used by one thread at a time."""

    @property
    def count(self) -> int | None:
        """How many records the source holds; None if that is not known."""

    @property
    def record_shapes(self) -> list[Shape]:
        """The shape that one record has in each top, without the batch axis."""

    def read(self, records: Sequence[int], form: BatchForm) -> list[Array]:
        """Return one array a top, of these global records (which run on past the end of the source).

        Raises:
            DataError: a record that cannot be read.
        """

    def close(self) -> None:
        """Close files."""


def empty(shape: Shape, dtype: np.dtype[Any], channels_last: bool) -> Array:
    """Return an array with nothing in it yet, four-dimensional ones in the memory order that is asked for."""
    if not channels_last or len(shape) != 4:
        return np.empty(shape, dtype)
    count, channels, height, width = shape
    return np.empty((count, height, width, channels), dtype).transpose(0, 3, 1, 2)


def in_form(array: Array, form: BatchForm) -> Array:
    """Return the values of `array` in the type and memory order of `form`."""
    result = form.empty(array.shape)
    result[...] = array
    return result


class EpochOrder:
    """Which of a source's items each global record is, with a new order every epoch where it is shuffled.

    Args:
        count: how many items there are.
        shuffle: whether their order changes.
        rand_skip: record 0 is one of the first so many items, which the seed picks: the same one on all ranks and
            after a resume; 0 for the first.
    """

    def __init__(self, count: int, shuffle: bool, rand_skip: int = 0) -> None:
        self.count = count
        self._shuffle, self._rand_skip = shuffle, rand_skip
        self._cached: tuple[tuple[int, int], NDArray[np.int64]] | None = None

    def indices(self, records: Sequence[int], stream: int) -> list[int]:
        """Return the items that these global records stand for, each from 0 to count - 1."""
        if self._rand_skip:
            skipped = int(random_numbers.below(stream, [0], np.array([self._rand_skip]))[0])
            records = [record + skipped for record in records]
        if not self._shuffle:
            return [record % self.count for record in records]
        return [int(self._permutation(stream, record // self.count)[record % self.count]) for record in records]

    def _permutation(self, stream: int, epoch: int) -> NDArray[np.int64]:
        key = (stream, epoch)
        if self._cached is None or self._cached[0] != key:
            order = random_numbers.permutation(random_numbers.stream(stream, "order", epoch), self.count)
            self._cached = (key, order)
        return self._cached[1]
