"""Rows in an LMDB, as `engine convert_criteo` writes them: numbers of fixed size, many rows a record.

A record is a Datum of up to 64 rows x 1 x B bytes, all but the last one full. The B bytes of a row are its label (1
byte), 13 integers and 26 categorical values, little-endian: of 4 bytes each (B = 157) where all of a record's values
fit, else of 8 (B = 313). Missing values are 0. The key is the number of the first row, `%010d`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mgcaffe.engine.data.criteo.rows import CATEGORIES, INTEGERS, Rows
from mgcaffe.engine.data.datum import decode_datum
from mgcaffe.engine.data.lmdb.source import open_lmdb
from mgcaffe.errors import DataError
from mgcaffe.prototxt import Datum

ROWS = 64
"""Rows of a record."""


def _row_type(size: int) -> np.dtype[np.void]:
    return np.dtype(
        [("labels", "u1"), ("integers", f"<i{size}", (INTEGERS,)), ("categories", f"<u{size}", (CATEGORIES,))]
    )


Packed = NDArray[np.void]
_NARROW, _WIDE = _row_type(4), _row_type(8)


def pack(rows: Rows) -> bytes:
    """Return the record of up to 64 rows."""
    narrow = (
        -(1 << 31) <= rows.integers.min()
        and rows.integers.max() < 1 << 31
        and rows.categories.max() < np.uint64(1 << 32)
    )
    packed = np.empty(len(rows.labels), _NARROW if narrow else _WIDE)
    for name in ("labels", "integers", "categories"):
        packed[name] = getattr(rows, name)
    datum = Datum(channels=len(packed), height=1, width=packed.itemsize, data=packed.tobytes(), label=0)
    return datum.SerializeToString(deterministic=True)


def unpack(record: bytes) -> Packed:
    """Return the rows of a record as they lie in it.

    Raises:
        DataError: it is none.
    """
    image, _ = decode_datum(record)
    kind = next((each for each in (_NARROW, _WIDE) if image.shape[1:] == (1, each.itemsize)), None)
    if kind is None or image.dtype != np.uint8 or len(image) > ROWS:
        raise DataError("it is no record of rows in Criteo's format", hint="make the database by engine convert_criteo")
    packed = np.frombuffer(image.tobytes(), kind)
    if packed["labels"].max() > 1:
        raise DataError(f"it holds the label {packed['labels'].max()}")
    return packed


def rows_of(packed: Packed) -> Rows:
    """Return the values of rows as they lie in records."""
    return Rows(packed["labels"], packed["integers"].astype(np.int64), packed["categories"].astype(np.uint64))


class PackedRows:
    """The rows of an LMDB by number. See RowSource.

    Args:
        folder: the database's.

    Raises:
        DataError: it cannot be opened, or its last record is damaged.
    """

    in_order_only: str | None = None

    def __init__(self, folder: str) -> None:
        self._source = open_lmdb(folder)
        last = len(self._source) - 1
        self._count = last * ROWS + len(self._record(last))

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._count

    def row(self, number: int) -> Rows:
        """Return one row. See RowSource."""
        return rows_of(self._record(number // ROWS)[[number % ROWS]])

    def rows(self, numbers: Sequence[int]) -> tuple[Rows, NDArray[np.bool_]]:
        """Return many rows, and which of them are right. See RowSource."""
        self._source.check_unchanged()
        wanted = np.asarray(numbers, np.int64)
        rows, right = Rows.zeros(len(wanted)), np.zeros(len(wanted), bool)
        record = wanted // ROWS
        for number in np.unique(record):
            places = np.flatnonzero(record == number)
            try:
                rows.put(places, rows_of(self._record(int(number))[wanted[places] % ROWS]))
            except DataError:
                continue  # `row` says what is wrong
            right[places] = True
        return rows, right

    def _record(self, number: int) -> Packed:
        value = self._source.value(number)
        try:
            packed = unpack(value)
            if len(packed) != ROWS and number != len(self._source) - 1:
                raise DataError(f"it holds {len(packed)} rows, not {ROWS}")
        except DataError as error:
            raise DataError(f"{self._source.describe(number)}: {error.message}", hint=error.hint) from error
        return packed
