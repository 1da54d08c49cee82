"""What databases of records have in common: records by number, in the order of their keys."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from mgcaffe.errors import DataError

_Source = TypeVar("_Source", bound="RecordSource")
_OPEN: WeakValueDictionary[tuple[int, int, int], RecordSource] = WeakValueDictionary()
_OPENING = threading.Lock()


class RecordSource:
    """The records of a database by number. Any number of threads may read from it.

    Args:
        name: the folder, as the user wrote it.
        keys: all keys, one after the other.
        key_ends: where each one ends in `keys`.
    """

    def __init__(self, name: str, keys: bytes, key_ends: npt.NDArray[np.int64]) -> None:
        self.name = name
        self._keys, self._key_ends = keys, key_ends

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._key_ends)

    def key(self, number: int) -> bytes:
        """Return the key of record `number`."""
        start = int(self._key_ends[number - 1]) if number else 0
        return self._keys[start : int(self._key_ends[number])]

    def describe(self, number: int) -> str:
        """Return what to call record `number` in a message."""
        return f"record {number} (key {self.key(number).decode(errors='backslashreplace')!r}) of '{self.name}'"

    def value(self, number: int) -> bytes:
        """Return the value of a record.

        Raises:
            DataError: it cannot be read, or is not what was written.
        """
        raise NotImplementedError

    def check_unchanged(self) -> None:
        """Make sure that what is read is what was there when the source was opened; here nothing needs to be done.

        Raises:
            DataError: somebody wrote to it.
        """


def database_folder(folder: str) -> Path:
    """Return the path of a folder that is there.

    Raises:
        DataError: it is not.
    """
    path = Path(folder)
    if not path.exists():
        raise DataError(
            f"data source '{folder}' does not exist",
            hint=f"relative paths start from the working directory, {Path.cwd()}",
        )
    if not path.is_dir():
        raise DataError(f"data source '{folder}' is a file; it has to be the folder of a database")
    return path


def opened_once(file: Path, make: Callable[[], _Source]) -> _Source:
    """Return what `make` makes of a database, once for all that read it at a time.

    Args:
        file: one of the database's, which changes when it is written to.
        make: opens it.
    """
    status = file.stat()
    key = (status.st_dev, status.st_ino, status.st_mtime_ns)
    with _OPENING:
        source = _OPEN.get(key)
        if source is None:
            source = _OPEN[key] = make()
        return cast("_Source", source)
