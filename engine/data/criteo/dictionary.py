"""Dictionaries of categorical values: contiguous ids in place of hashed ones.

The file, made by `engine convert_criteo --dictionary`, holds the values of each of the 26 features in the order of how
often they come, as little-endian u64, behind a line of JSON that counts them and holds their CRC-32. The value at place
k (from 0) has the id k + 1; id 0 stands for missing values and for those that are not in the dictionary.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mgcaffe.engine.data.criteo.rows import CATEGORIES
from mgcaffe.errors import DataError
from mgcaffe.errors.checked_json import parse_json
from mgcaffe.errors.file_names import refuse_device
from mgcaffe.errors.whole_files import write_whole

_FORM = "mgcaffe Criteo dictionary 1"

Values = NDArray[np.uint64]


class Dictionary:
    """The ids of values.

    Args:
        values: of each feature, in the order of their ids from 1.
    """

    def __init__(self, values: Sequence[Values]) -> None:
        orders = [np.argsort(each, kind="stable") for each in values]
        self._sorted = [each[order] for each, order in zip(values, orders, strict=True)]
        self._ids = [order.astype(np.uint64) + np.uint64(1) for order in orders]

    @property
    def sizes(self) -> list[int]:
        """How many ids each feature has, id 0 included: what its table needs."""
        return [len(values) + 1 for values in self._sorted]

    def ids(self, categories: Values) -> Values:
        """Return the ids of values, (N, 26)."""
        found = np.zeros_like(categories)
        for number, (values, ids) in enumerate(zip(self._sorted, self._ids, strict=True)):
            if len(values):
                column = categories[:, number]
                places = np.minimum(np.searchsorted(values, column), len(values) - 1)
                found[:, number] = np.where((values[places] == column) & (column > 0), ids[places], np.uint64(0))
        return found


def write_dictionary(path: Path, values: Sequence[Values]) -> None:
    """Write the values of each feature, in the order of their ids.

    Raises:
        OSError: it cannot be written.
    """
    table = b"".join(each.astype("<u8").tobytes() for each in values)
    head = {"form": _FORM, "values": [len(each) for each in values], "crc32": zlib.crc32(table)}
    write_whole(path, json.dumps(head).encode() + b"\n" + table)


def read_dictionary(path: str) -> Dictionary:
    """Return the dictionary of a file.

    Raises:
        DataError: there is none, or it is damaged.
    """
    try:
        refuse_device(path)
        head, _, table = Path(path).read_bytes().partition(b"\n")
    except OSError as error:
        hint = "engine convert_criteo --dictionary=FILE SOURCE... makes one"
        raise DataError(f"dictionary '{path}' cannot be read: {error.strerror}", hint=hint) from error
    try:
        said = parse_json(head, path, "no dictionary")
        counts = [each.integer(least=0) for each in said["values"].elements()]
        sound = said["form"].text() == _FORM and said["crc32"].integer() == zlib.crc32(table)
        sound = sound and len(counts) == CATEGORIES
    except DataError:
        counts, sound = [], False
    if not sound or len(table) != 8 * sum(counts):
        raise DataError(
            f"dictionary '{path}' is damaged, or none", hint="make it by engine convert_criteo --dictionary"
        )
    every = np.frombuffer(table, "<u8").astype(np.uint64)
    return Dictionary(np.split(every, np.cumsum(counts)[:-1]))
