"""A folder with an LMDB database as a list of records, in the order of their keys.

The keys are read once, without the values (0.1 s a million), so that any record can be had by its number.
The file is mapped, not copied: ranks on one machine share the pages that they read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakValueDictionary

import lmdb
import numpy as np

from mgcaffe.errors import DataError

_OPEN: WeakValueDictionary[tuple[int, int], LmdbSource] = WeakValueDictionary()
_OPENING = threading.Lock()
_LEVELDB_HINT = (
    "LevelDB is not read here. Write the data again with convert_imageset --backend=lmdb, or copy the records"
    " in the order of their keys with the Python packages plyvel and lmdb; then say backend: LMDB"
)


class LmdbSource:
    """The values of an LMDB database by number. Made by `open_lmdb`; closed when nobody holds it any more.

    Attributes:
        name: the folder, as the user wrote it.
    """

    def __init__(self, folder: str) -> None:
        self.name = folder
        try:
            self._environment = lmdb.open(
                folder, readonly=True, lock=False, readahead=False, create=False, max_spare_txns=4
            )
        except lmdb.Error as error:
            raise DataError(f"data source '{folder}' cannot be opened as LMDB: {error}") from error
        self._check_length()
        self._read_keys()

    def __len__(self) -> int:
        """The number of records."""
        return len(self._ends)

    def key(self, number: int) -> bytes:
        """The key of record `number`."""
        start = int(self._ends[number - 1]) if number else 0
        return self._keys[start : int(self._ends[number])]

    def describe(self, number: int) -> str:
        """What to call record `number` in a message."""
        return f"record {number} (key {self.key(number).decode(errors='backslashreplace')!r}) of '{self.name}'"

    def values(self, numbers: Sequence[int]) -> list[bytes]:
        """The values of these records.

        Raises:
            DataError: the database is damaged.
        """
        with self._environment.begin() as transaction:
            return [self._value(transaction, number) for number in numbers]

    def _value(self, transaction: lmdb.Transaction, number: int) -> bytes:
        try:
            value = transaction.get(self.key(number))
        except lmdb.Error as error:
            raise DataError(f"{self.describe(number)} cannot be read: {error}") from error
        if value is None:
            raise DataError(f"{self.describe(number)} is gone: the database changed while it was being read")
        return bytes(value)

    def _check_length(self) -> None:
        """A file that was cut off would end the process (SIGBUS) as soon as a missing page is touched."""
        expected = (self._environment.info()["last_pgno"] + 1) * self._environment.stat()["psize"]
        found = (Path(self.name) / "data.mdb").stat().st_size
        if found < expected:
            raise DataError(
                f"data source '{self.name}' is cut off: data.mdb has {found} bytes instead of {expected}",
                hint="copy it again",
            )

    def _read_keys(self) -> None:
        try:
            with self._environment.begin() as transaction:
                keys = list(transaction.cursor().iternext(keys=True, values=False))
        except lmdb.Error as error:
            raise DataError(f"the keys of data source '{self.name}' cannot be read: {error}") from error
        if not keys:
            raise DataError(f"data source '{self.name}' holds no records")
        self._keys = b"".join(keys)
        self._ends = np.cumsum(np.fromiter(map(len, keys), np.int64, len(keys)))


def open_lmdb(folder: str) -> LmdbSource:
    """The database in `folder` (relative to the working directory); layers that read the same one share it.

    Raises:
        DataError: there is no such folder, it holds no LMDB, or the LMDB is empty or damaged.
    """
    _check_folder(folder)
    status = (Path(folder) / "data.mdb").stat()
    key = (status.st_dev, status.st_ino)
    with _OPENING:  # LMDB does not allow a second environment on a file within a process
        source = _OPEN.get(key)
        if source is None:
            source = _OPEN[key] = LmdbSource(folder)
        return source


def _check_folder(folder: str) -> None:
    path = Path(folder)
    if not path.exists():
        raise DataError(
            f"data source '{folder}' does not exist",
            hint=f"relative paths start from the working directory, {Path.cwd()}",
        )
    if not path.is_dir():
        raise DataError(f"data source '{folder}' is a file; it has to be the folder of an LMDB database")
    if (path / "data.mdb").is_file():
        if not os.access(path / "data.mdb", os.R_OK):
            raise DataError(f"data source '{folder}': data.mdb may not be read (permission denied)")
        return
    if (path / "CURRENT").exists() or any(path.glob("MANIFEST-*")):
        raise DataError(f"data source '{folder}' is a LevelDB database", hint=_LEVELDB_HINT)
    raise DataError(f"data source '{folder}' is a folder without an LMDB database (it has no data.mdb)")
