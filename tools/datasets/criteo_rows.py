"""What `engine convert_criteo` makes of rows: records of an LMDB, and the values of a dictionary."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mgcaffe.engine.data.criteo.packed_rows import ROWS, pack
from mgcaffe.engine.data.criteo.rows import CATEGORIES, Rows, RowSource
from mgcaffe.errors import DataError
from mgcaffe.tools.listeners.glog import log_line

_CHUNK = 64 * ROWS
_EVERY = 1_000_000
_LEAST_MERGED = 1 << 20

Values = NDArray[np.uint64]


class GoodRows:
    """Goes through the rows of a source; malformed ones are named and left out.

    Args:
        source: the rows.
        bad_limit: how many may be left out.

    Attributes:
        bad: how many were left out.
    """

    def __init__(self, source: RowSource, bad_limit: int) -> None:
        self.bad = 0
        self._source, self._bad_limit = source, bad_limit

    def __iter__(self) -> Iterator[Rows]:
        """Return some rows at a time.

        Raises:
            DataError: more are malformed than may be left out.
        """
        count = len(self._source)
        for start in range(0, count, _CHUNK):
            numbers = range(start, min(start + _CHUNK, count))
            rows, right = self._source.rows(numbers)
            good = right.copy()
            for place in np.flatnonzero(~right):
                row = self._read(numbers[place])
                if row is not None:
                    rows.put(np.array([place]), row)
                    good[place] = True
            yield rows if good.all() else rows.take(np.flatnonzero(good))
            if numbers.stop // _EVERY > start // _EVERY:
                log_line(f"Processed {numbers.stop} rows.")

    def _read(self, number: int) -> Rows | None:
        try:
            return self._source.row(number)
        except DataError as error:
            self.bad += 1
            if self.bad > self._bad_limit:
                raise DataError(
                    f"{error.message}; this is bad row {self.bad}, and bad_record_limit is {self._bad_limit}",
                    location=error.location,
                    hint=error.hint or "repair the source, or raise --bad_record_limit",
                ) from error
            where = f"{error.location}: " if error.location else ""
            log_line(f"{where}{error.message}: left out (bad row {self.bad})", level=logging.WARNING)
            return None


def records(good: GoodRows) -> Iterator[tuple[bytes, bytes, int]]:
    """Return key, value and number of rows of each record of an LMDB."""
    waiting = Rows.zeros(0)
    done = 0
    for rows in good:
        waiting = waiting.joined(rows)
        whole = len(waiting.labels) // ROWS * ROWS
        for start in range(0, whole, ROWS):
            yield b"%010d" % done, pack(waiting.take(np.arange(start, start + ROWS))), ROWS
            done += ROWS
        waiting = waiting.take(np.arange(whole, len(waiting.labels)))
    if rest := len(waiting.labels):
        yield b"%010d" % done, pack(waiting), rest


class _Counts:
    """How often each value of a feature comes; what is new waits until it is worth the sorting."""

    def __init__(self) -> None:
        self.values, self.counts = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._waiting: list[Values] = []
        self._waiting_count = 0

    def add(self, values: Values) -> None:
        """Count some more."""
        self._waiting.append(values)
        self._waiting_count += len(values)
        if self._waiting_count > max(_LEAST_MERGED, len(self.values)):
            self.merge()

    def merge(self) -> None:
        """Count what waits."""
        if not self._waiting:
            return
        values, counts = np.unique(np.concatenate(self._waiting), return_counts=True)
        self._waiting, self._waiting_count = [], 0
        every, place = np.unique(np.concatenate([self.values, values]), return_inverse=True)
        total = np.zeros(len(every), np.int64)
        np.add.at(total, place, np.concatenate([self.counts, counts]))
        self.values, self.counts = every, total


def frequent_values(good: GoodRows, least: int) -> list[Values]:
    """Return the values of each feature that come at least so often, the most frequent one first; 0 is none.

    Values that come equally often are in ascending order.
    """
    features = [_Counts() for _ in range(CATEGORIES)]
    for rows in good:
        for feature, column in zip(features, rows.categories.T, strict=True):
            feature.add(column[column > 0])
    found = []
    for feature in features:
        feature.merge()
        often = feature.counts >= least
        values, counts = feature.values[often], feature.counts[often]
        found.append(values[np.argsort(-counts, kind="stable")])
    return found
