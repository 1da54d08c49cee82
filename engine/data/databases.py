"""Opening a folder of records, an LMDB or a LevelDB, whichever it holds."""

from __future__ import annotations

from mgcaffe.engine.data.leveldb import LevelDbSource, is_leveldb
from mgcaffe.engine.data.lmdb.source import open_lmdb
from mgcaffe.engine.data.record_source import RecordSource, database_folder, opened_once
from mgcaffe.errors import DataError


def open_records(folder: str) -> RecordSource:
    """Return the records of the database in `folder` (relative to the working directory), opened once for all readers.

    Raises:
        DataError: there is no such folder, it holds neither an LMDB nor a LevelDB, or the database is empty or damaged.
    """
    path = database_folder(folder)
    if (path / "data.mdb").exists():
        return open_lmdb(folder)
    if not is_leveldb(path):
        raise DataError(f"data source '{folder}' is a folder with neither an LMDB (data.mdb) nor a LevelDB (CURRENT)")
    return opened_once(path / "CURRENT", lambda: LevelDbSource(folder))
