"""Opening a folder of records, an LMDB or a LevelDB, whichever it holds."""

from __future__ import annotations

from pathlib import Path

from mgcaffe.engine.data.leveldb import LevelDbSource, is_leveldb
from mgcaffe.engine.data.lmdb.source import open_lmdb
from mgcaffe.engine.data.record_source import RecordSource


def open_records(folder: str) -> RecordSource:
    """Return the records of the database in `folder` (relative to the working directory).

    Raises:
        DataError: there is no such folder, it holds neither an LMDB nor a LevelDB, or the database is empty or damaged.
    """
    path = Path(folder)
    if is_leveldb(path) and not (path / "data.mdb").is_file():
        return LevelDbSource(folder)
    return open_lmdb(folder)
