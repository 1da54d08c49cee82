"""Folders of records: an LMDB or a LevelDB, whichever the folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from mgcaffe.engine.data.leveldb import LevelDbSource, is_leveldb
from mgcaffe.engine.data.lmdb.source import open_lmdb


class RecordSource(Protocol):
    """Records by number, in the order of their keys; any number of threads may read."""

    name: str

    def __len__(self) -> int:
        """Return the number of records."""
        ...

    def key(self, number: int) -> bytes:
        """Return the key of record `number`."""
        ...

    def describe(self, number: int) -> str:
        """Return what to call record `number` in a message."""
        ...

    def value(self, number: int) -> bytes:
        """Return the value of record `number`, or raise DataError."""
        ...

    def check_unchanged(self) -> None:
        """Raise DataError if what was written since may be read as something else."""
        ...


def open_records(folder: str) -> RecordSource:
    """Return the records of the database in `folder` (relative to the working directory).

    Raises:
        DataError: there is no such folder, it holds neither an LMDB nor a LevelDB, or the database is empty or damaged.
    """
    path = Path(folder)
    if is_leveldb(path) and not (path / "data.mdb").is_file():
        return LevelDbSource(folder)
    return open_lmdb(folder)
