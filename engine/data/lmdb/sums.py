"""The sum file that our converters write beside an LMDB, since LMDB has no checksums of its own.

`sums.crc32` in the database's folder: a line of JSON, and behind it the CRC-32 of every record (its key, then its
value) as a little-endian u32, in the order of the keys. The line counts the records and holds the CRC-32 of the
sums themselves. A record's sum is checked whenever the record is read, which costs about 1 ms for each 2 MB, so there
is no check of the whole database at the start (`engine check_lmdb` does one) and nothing to keep up to date but the
database itself. Caffe and liblmdb do not look at the file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mgcaffe.errors import DataError
from mgcaffe.errors.checked_json import parse_json
from mgcaffe.errors.whole_files import write_whole

FILE = "sums.crc32"
_FORM = "mgcaffe LMDB sums 1"

Sums = NDArray[np.uint32]


def record_sum(key: bytes, *value: bytes) -> int:
    """Return the CRC-32 of a record, its value whole or in parts."""
    found = zlib.crc32(key)
    for part in value:
        found = zlib.crc32(part, found)
    return found


def write_sums(folder: Path, sums: Iterable[int]) -> Path:
    """Write the sum file of the database in `folder`.

    Args:
        folder: where `data.mdb` lies.
        sums: one for each record, in the order of the keys.

    Raises:
        OSError: it cannot be written.
    """
    table = np.fromiter(sums, "<u4").tobytes()
    head = {"form": _FORM, "records": len(table) // 4, "crc32": zlib.crc32(table)}
    path = folder / FILE
    write_whole(path, json.dumps(head).encode() + b"\n" + table)
    return path


def read_sums(folder: Path, records: int) -> Sums | None:
    """Return the sums of a database of so many records; None where it has no sum file.

    Raises:
        DataError: the sum file is damaged, or another database's.
    """
    path = folder / FILE
    try:
        head, _, table = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"sum file '{path}' cannot be read: {error.strerror}") from error
    try:
        said = parse_json(head, str(path), "no sum file")
        said_records = said["records"].integer(least=0)
        sound = said["form"].text() == _FORM and said["crc32"].integer() == zlib.crc32(table)
        sound = sound and len(table) == 4 * said_records
    except DataError:
        sound, said_records = False, 0
    if not sound:
        raise DataError(f"sum file '{path}' is damaged", hint=_hint(folder))
    if said_records != records:
        raise DataError(
            f"data source '{folder}' holds {records} records, but its sum file is of {said_records}", hint=_hint(folder)
        )
    return np.frombuffer(table, "<u4")


def _hint(folder: Path) -> str:
    return (
        "copy the database again; if it was changed on purpose, `engine check_lmdb --write_sums "
        f"{folder}` writes its sums anew"
    )
