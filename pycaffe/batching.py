"""Cuts records into batches of a net's size, and joins what comes out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mgcaffe.engine.types import Array
from mgcaffe.pycaffe.problems import ArgumentError


def in_batches(arrays: Mapping[str, Any], size: int) -> Iterator[dict[str, Array]]:
    """Return the arrays in pieces of `size` records, the last one filled up with zeros.

    Raises:
        ArgumentError: there are none, or not as many records in each.
    """
    rows = {name: np.asarray(values) for name, values in arrays.items()}
    counts = {name: len(values) for name, values in rows.items()}
    if len(set(counts.values())) != 1:
        raise ArgumentError(f"all arrays have to have the same number of records, not {counts or 'none'}")
    for start in range(0, next(iter(counts.values())), size):
        yield {name: _filled(values[start : start + size], size) for name, values in rows.items()}


def joined(parts: Sequence[Mapping[str, Array]], names: Sequence[str], count: int) -> dict[str, Array]:
    """Return the first `count` rows of the parts put together; what has no rows (a loss) is one value a batch."""
    result = {}
    for name in names:
        arrays = [part[name] for part in parts]
        whole = np.concatenate([np.atleast_1d(array) for array in arrays])
        result[name] = whole[:count] if arrays[0].ndim else whole
    return result


def _filled(rows: Array, size: int) -> Array:
    missing = size - len(rows)
    if not missing:
        return rows
    return np.concatenate([rows, np.zeros((missing, *rows.shape[1:]), rows.dtype)])
