"""Which records of a data source a rank reads.

Iteration i of R ranks with batch B consumes the global records i*R*B to (i+1)*R*B - 1, and rank r takes
every R-th of them: what one rank with batch R*B would have read, in round-robin order. Tests take
whole batches instead, so that the mean over test_iter batches is the one that a single rank computes.
Record numbers run on past the end of the source; a data layer takes them modulo its size.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shard:
    """One rank's part of a source that every rank reads in step (training)."""

    rank: int = 0
    size: int = 1

    @property
    def step(self) -> int:
        """From a record of a batch to the next one: the ranks that batches are dealt out to record by record."""
        return self.size

    def records(self, start: int, batch: int, batch_size: int) -> range:
        """Return the global numbers of the records in this rank's `batch`-th batch after global record `start`."""
        first = start + batch * self.size * batch_size
        return range(first + self.rank, first + self.size * batch_size, self.size)

    def position(self, start: int, batches: int, batch_size: int) -> int:
        """Global records consumed by all ranks once each has read `batches` batches from `start` on."""
        return start + batches * self.size * batch_size


@dataclass(frozen=True)
class BatchShard(Shard):
    """The same for a net that reads sequences: each rank's batch is one piece, since its order is time."""

    @property
    def step(self) -> int:
        """From a record of a batch to the next one."""
        return 1

    def records(self, start: int, batch: int, batch_size: int) -> range:
        """Return the global numbers of the records in this rank's `batch`-th batch after global record `start`."""
        first = start + (batch * self.size + self.rank) * batch_size
        return range(first, first + batch_size)


@dataclass(frozen=True)
class TestShard:
    """One rank's part of a test of `test_iter` batches: batches rank, rank + size, ... of each test."""

    __test__ = False  # the name is not a pytest class

    rank: int
    size: int
    test_iter: int

    @property
    def step(self) -> int:
        """From a record of a batch to the next one."""
        return 1

    @property
    def batches(self) -> int:
        """How many of the `test_iter` batches this rank runs (0 where there are more ranks than batches)."""
        return len(range(self.rank, self.test_iter, self.size))

    def records(self, start: int, batch: int, batch_size: int) -> range:
        """Return the global numbers of the records in this rank's `batch`-th batch, counted over all its tests."""
        test, within = divmod(batch, self.batches)
        first = start + (test * self.test_iter + self.rank + within * self.size) * batch_size
        return range(first, first + batch_size)

    def position(self, start: int, batches: int, batch_size: int) -> int:
        """Global records consumed by all ranks after the whole tests in this rank's `batches` batches."""
        tests = batches // self.batches if self.batches else 0
        return start + tests * self.test_iter * batch_size
