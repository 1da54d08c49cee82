"""Writes LMDB databases as Caffe's tools do, and the sum file beside them.

A database appears in its folder complete or not at all: it is written as `<name>.partial` beside its place, and then
renamed. What a killed process leaves there the next one clears away, or goes on with.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

import lmdb

from mgcaffe.engine.data.lmdb.source import LmdbSource
from mgcaffe.engine.data.lmdb.sums import record_sum, write_sums
from mgcaffe.errors import EXIT_CANNOT_WRITE, DataError, EngineError
from mgcaffe.prototxt.whole_files import flush_folder

MAX_KEY = 511
"""The most bytes that a key of LMDB may have."""
_KEYS = f"LMDB takes 1 to {MAX_KEY}"
_COMMIT_EVERY = 1000
_BYTES_OF_COMMIT = 1 << 25
_FIRST_MAP_SIZE = 1 << 26
_LOCK, _WORK = "writing.lock", "work.txt"
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_log = logging.getLogger("mgcaffe.engine")


class LmdbWriter:
    """Takes records and leaves a database behind when its `with` block ends well.

    Records are written by a thread of its own, a thousand at a time. The process that writes holds a lock, so two
    processes never write the same database.

    Args:
        folder: the database's; must not exist, unless it is to be replaced.
        replace: take the place of the database that is there.
        work: what stands for the records that are to be written, such as a digest of their list. With it, the records
            of a run that was interrupted stay, and a run of the same work can go on from them.
        resume: go on from them, if there are any.

    Attributes:
        count: records so far, those of an earlier run included.
        last_key: the highest key among those of an earlier run, None without one.
        first_value: the value of their first one.

    Raises:
        EngineError: (exit code 73) the folder exists or cannot be written, another process is writing it, or an
            earlier run was interrupted and is not resumed, or was of other work.
    """

    def __init__(
        self, folder: str | Path, *, replace: bool = False, work: str | None = None, resume: bool = False
    ) -> None:
        self.folder = Path(folder)
        self.count = 0
        self.last_key: bytes | None = None
        self.first_value: bytes | None = None
        self._replaces, self._work, self._finished = replace, work, False
        self._scratch = self.folder.with_name(f"{self.folder.name}.partial")
        self._pending: list[tuple[bytes, bytes]] = []
        self._pending_bytes = 0
        self._sums: dict[bytes, int] = {}
        self._files: dict[str, bytes] = {}
        self._refuse_existing()
        try:
            self._lock = _locked(self._scratch)
        except BlockingIOError:
            raise EngineError(
                f"another process is writing the database '{folder}'",
                exit_code=EXIT_CANNOT_WRITE,
                hint="wait until it ends, or choose another name",
            ) from None
        except OSError as error:
            raise self._failure(error) from None
        try:
            self._open(resume)
        except BaseException:
            os.close(self._lock)
            raise
        self._thread = ThreadPoolExecutor(1)
        self._commit_under_way: Future[None] | None = None

    def put(self, key: bytes, value: bytes) -> None:
        """Add a record.

        Raises:
            DataError: there is one of that key, or the key is too long.
            EngineError: (exit code 73) the disk is full, or the like.
        """
        if key in self._sums:
            raise DataError(f"two records have the key {key.decode(errors='backslashreplace')!r}")
        if not 0 < len(key) <= MAX_KEY:
            raise DataError(f"the key {key.decode(errors='backslashreplace')!r} has {len(key)} bytes; {_KEYS}")
        self._sums[key] = record_sum(key, value)
        self._pending.append((key, value))
        self._pending_bytes += len(value)
        self.count += 1
        if len(self._pending) == _COMMIT_EVERY or self._pending_bytes > _BYTES_OF_COMMIT:
            self._commit()

    def add_file(self, name: str, content: bytes) -> None:
        """Put a file into the database's folder, where Caffe does not look at it."""
        self._files[name] = content

    def _refuse_existing(self) -> None:
        if self.folder.exists() and not self._replaces:
            raise EngineError(
                f"'{self.folder}' exists already", exit_code=EXIT_CANNOT_WRITE, hint="remove it, or choose another name"
            )

    def _open(self, resume: bool) -> None:
        if self.folder.exists() and not self._replaces:  # the process that held the lock until now has made it
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._refuse_existing()
        work = self._scratch / _WORK
        try:
            earlier = self._earlier() if self._work is not None and work.exists() else None
            if earlier is not None and not resume:
                raise self._leftover(
                    f"holds {len(earlier)} records of a run that was interrupted",
                    "go on from them with --resume, or remove it",
                )
            if earlier is not None and work.read_text() != self._work:
                raise self._leftover(
                    "is of a run with another list, other files or other flags", "remove it, or repeat that run"
                )
            if earlier is not None:
                self._take_over(earlier)
            else:
                self._clear()
            if self._work is not None:
                work.write_text(self._work)
            self._environment = lmdb.open(str(self._scratch), map_size=_FIRST_MAP_SIZE, lock=False)
        except (OSError, lmdb.Error) as error:
            raise self._failure(error) from None

    def _leftover(self, what: str, hint: str) -> EngineError:
        return EngineError(f"'{self._scratch}' {what}", exit_code=EXIT_CANNOT_WRITE, hint=hint)

    def _earlier(self) -> LmdbSource | None:
        """Return what an earlier run left, for our own reader since it may be damaged."""
        try:
            return LmdbSource(str(self._scratch), without_sums=True)
        except DataError as error:
            if "holds no records" not in error.message:
                _log.warning("what an earlier run left is of no use: %s", error.message)
            return None

    def _take_over(self, earlier: LmdbSource) -> None:
        for number, found in enumerate(earlier.sums()):
            self._sums[earlier.key(number)] = found
        self.count = len(earlier)
        self.last_key = earlier.key(self.count - 1)
        self.first_value = earlier.value(0)

    def _clear(self) -> None:
        for path in self._scratch.iterdir():
            if path.name != _LOCK:
                path.unlink()

    def _commit(self) -> None:
        """Hand what is pending to the thread, once it has written what it had."""
        self._await_commit()
        records, self._pending, self._pending_bytes = self._pending, [], 0
        self._commit_under_way = self._thread.submit(self._write, records)

    def _await_commit(self) -> None:
        under_way, self._commit_under_way = self._commit_under_way, None
        if under_way is None:
            return
        try:
            under_way.result()
        except lmdb.Error as error:
            raise self._failure(error) from None

    def _write(self, records: list[tuple[bytes, bytes]]) -> None:
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    for key, value in records:
                        transaction.put(key, value)
                return
            except lmdb.MapFullError:
                self._environment.set_mapsize(2 * self._environment.info()["map_size"])

    def _finish(self) -> None:
        try:
            self._commit()
            self._await_commit()
            self._environment.sync(True)
            self._environment.close()
            write_sums(self._scratch, (self._sums[key] for key in sorted(self._sums)))
            for name, content in self._files.items():
                (self._scratch / name).write_bytes(content)
            (self._scratch / _WORK).unlink(missing_ok=True)
            (self._scratch / _LOCK).unlink()
            self._take_place()
        except (OSError, lmdb.Error) as error:
            raise self._failure(error) from None

    def _take_place(self) -> None:
        old = self.folder.with_name(f"{self.folder.name}.{os.getpid()}.old")
        if self._replaces and self.folder.exists():
            self.folder.rename(old)
        self._scratch.rename(self.folder)
        flush_folder(self.folder.absolute().parent)
        if old.exists():
            shutil.rmtree(old)
        self._finished = True

    def _failure(self, error: Exception) -> EngineError:
        reason = getattr(error, "strerror", None) or error
        return EngineError(f"cannot write the database '{self.folder}': {reason}", exit_code=EXIT_CANNOT_WRITE)

    def __enter__(self) -> LmdbWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = kind is not None and not issubclass(kind, Exception)
        try:
            if kind is None:
                self._finish()
            elif interrupted and self._work is not None:
                self._commit()
        finally:
            self._thread.shutdown()
            self._environment.close()
            if not self._finished and not (interrupted and self._work is not None):
                shutil.rmtree(self._scratch, ignore_errors=True)
            os.close(self._lock)


def _locked(scratch: Path) -> int:
    """Make the folder if it is not there, and return the open file whose lock keeps other processes out of it.

    Raises:
        BlockingIOError: another process has it.
        OSError: it cannot be made.
    """
    while True:
        scratch.mkdir(exist_ok=True)
        path = scratch / _LOCK
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        except FileNotFoundError:  # the folder was renamed meanwhile
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:  # a file system without locks has to do without
                os.close(file)
                raise
        try:
            if os.fstat(file).st_ino == path.stat().st_ino:
                return file
        except FileNotFoundError:
            pass
        os.close(file)  # of a folder that another process has finished, or removed
