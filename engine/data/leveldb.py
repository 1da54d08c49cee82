"""A folder with a LevelDB database as a list of records, in the order of their keys.

LevelDB is Caffe's default backend. Its own library lets one process at a time open a database, and writes to one when
it opens it. RocksDB, which came from it, reads its files without writing, by the extra rocksdict; what rocksdict itself
puts beside them goes to a temporary folder of symbolic links to the files. So any number of ranks read one database,
whose folder may be read-only. (Caffe: db_leveldb.cpp.)
"""

from __future__ import annotations

import errno
import fcntl
import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp
from weakref import finalize

import numpy as np

from mgcaffe.engine.data.record_source import RecordSource, database_folder
from mgcaffe.errors import DataError

_FILE = re.compile(r"CURRENT|MANIFEST-\d+|\d+\.(ldb|sst|log)")
_LOG_BLOCK, _LOG_HEAD, _LAST_KIND = 32768, 7, 4  # of LevelDB's log format, in which manifests are written as well
_OPEN_FILES = 256  # at a time; a database has one for every 2 MB


class LevelDb:
    """A LevelDB database, opened to be read; closed when nothing refers to it any more.

    Any number of threads may read from it, and any number of processes that do it so. What is written to it after it
    was opened is not seen.

    Args:
        folder: where it lies, as the user wrote it.

    Raises:
        DataError: the folder holds no LevelDB, the database is damaged or open in another program, or rocksdict is not
            installed.
    """

    def __init__(self, folder: str) -> None:
        path = database_folder(folder)
        if not is_leveldb(path):
            raise DataError(f"'{folder}' is not the folder of a LevelDB database")
        if importlib.util.find_spec("rocksdict") is None:
            raise DataError(
                f"'{folder}' is a LevelDB database, and rocksdict, which reads those, is not installed",
                hint="pip install 'mgcaffe[leveldb]'",
            )
        import rocksdict

        self._folder = folder
        _refuse_if_locked(path)
        try:
            links = mkdtemp(prefix="mgcaffe_leveldb_")
        except OSError as error:
            raise DataError(
                f"no temporary folder can be made, by which LevelDB '{folder}' is read: {error.strerror}",
                hint="let TMPDIR name a folder that can be written to",
            ) from error
        finalize(self, _remove_links, links, os.getpid())
        try:
            for file in path.resolve().iterdir():
                if _FILE.fullmatch(file.name):
                    self._refuse_unknown_records(file)
                    (Path(links) / file.name).symlink_to(file)
        except OSError as error:
            raise DataError(f"LevelDB '{folder}' cannot be opened: {error.strerror}: {error.filename}") from error
        self._links = links
        options = rocksdict.Options(raw_mode=True)
        options.set_paranoid_checks(True)
        options.set_max_open_files(_OPEN_FILES)
        # A process that was killed while it wrote leaves half a record at the end of the log.
        options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.tolerate_corrupted_tail_records())
        with self._reading():
            self._database = rocksdict.Rdict(links, options, access_type=rocksdict.AccessType.read_only())
        finalize(self, self._database.close)

    def records(self, *, values: bool = True) -> Iterator[tuple[bytes, bytes]]:
        """Return all keys and values in the order of the keys. This reads and checks the whole database.

        Args:
            values: return the values as well, else empty ones.

        Raises:
            DataError: a checksum is wrong, or a file is missing or cannot be read.
        """
        with self._reading():
            place = self._database.iter()
            place.seek_to_first()
            while place.valid():
                yield place.key(), place.value() if values else b""
                place.next()
            place.status()  # raises what has ended it

    def value(self, key: bytes) -> bytes:
        """Return the value of a key; raise as `records`."""
        with self._reading():
            value: bytes | None = self._database.get(key)
        if value is None:
            raise DataError(f"LevelDB '{self._folder}' has no key {key!r} any more")
        return value

    def _refuse_unknown_records(self, file: Path) -> None:
        """Make sure that a log or manifest has only kinds of records that LevelDB writes.

        RocksDB has others, and never comes to an end where damage makes a manifest's record one of them.

        Raises:
            DataError: it has others.
        """
        if file.suffix != ".log" and not file.name.startswith("MANIFEST-"):
            return
        content = file.read_bytes()
        for start in range(0, len(content), _LOG_BLOCK):
            place, end = start, min(start + _LOG_BLOCK, len(content))
            while place + _LOG_HEAD <= end:
                if content[place + _LOG_HEAD - 1] > _LAST_KIND:
                    raise DataError(f"LevelDB '{self._folder}' cannot be read: {file.name} is damaged at byte {place}")
                place += _LOG_HEAD + int.from_bytes(content[place + 4 : place + 6], "little")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn RocksDB's errors into DataErrors; they have no class of their own."""
        try:
            yield
        except Exception as error:
            said = str(error).strip().replace(self._links, self._folder)
            raise DataError(f"LevelDB '{self._folder}' cannot be read: {said}") from error


class LevelDbSource(RecordSource):
    """The records of a LevelDB database. What is written to it meanwhile is not seen.

    Args:
        folder: where the database lies.

    Raises:
        DataError: as `LevelDb`; or it has no records.
    """

    def __init__(self, folder: str) -> None:
        self._database = LevelDb(folder)
        keys, ends = bytearray(), []
        for key, _ in self._database.records(values=False):
            keys += key
            ends.append(len(keys))
        if not ends:
            raise DataError(f"data source '{folder}' holds no records")
        super().__init__(folder, bytes(keys), np.array(ends))

    def value(self, number: int) -> bytes:
        """Return the value of a record; see RecordSource."""
        try:
            return self._database.value(self.key(number))
        except DataError as error:
            raise DataError(f"{self.describe(number)}: {error.message}") from error


def is_leveldb(folder: Path) -> bool:
    """Return whether a LevelDB lies in the folder."""
    return (folder / "CURRENT").exists()


def _remove_links(folder: str, process: int) -> None:
    """Remove a temporary folder, unless this process was forked from the one that made it and may still read by it."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_if_locked(folder: Path) -> None:
    """Make sure that no program has a database open by LevelDB's own library, which may write to it.

    Raises:
        DataError: one has, and the file system has locks.
    """
    try:
        lock = (folder / "LOCK").open("rb")
    except OSError:
        return  # a copy may have none
    with lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise DataError(
                    f"LevelDB '{folder}' is open in another program, which may be writing to it",
                    hint="wait until that has ended, or read a copy",
                ) from error
