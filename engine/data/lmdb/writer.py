"""Writes LMDB databases as Caffe's tools do, and the sum file beside them.

A database appears in its folder complete or not at all: it is written as `<name>.partial` beside its place, and then
renamed. What a killed process leaves there the next one clears away, or goes on with.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import shutil
from array import array
from pathlib import Path
from types import TracebackType

import lmdb

from mgcaffe.engine.data.lmdb.record_file import RecordFile
from mgcaffe.engine.data.lmdb.source import LmdbSource
from mgcaffe.engine.data.lmdb.sums import record_sum, write_sums
from mgcaffe.errors import EXIT_CANNOT_WRITE, DataError, EngineError
from mgcaffe.errors.whole_files import flush_folder

MAX_KEY = 511
"""The most bytes that a key of LMDB may have."""
_KEYS = f"LMDB takes 1 to {MAX_KEY}"
_COMMIT_EVERY = 1000
_LOCK, _WORK = "writing.lock", "work.txt"
_NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)
_log = logging.getLogger("mgcaffe.engine")


class LmdbWriter:
    """Takes records in the order of their keys and leaves a database behind when its `with` block ends well.

    The process that writes holds a lock, so two processes never write the same database.

    Args:
        folder: the database's; must not exist, unless it is to be replaced.
        replace: take the place of the database that is there.
        work: what stands for the records that are to be written, such as a digest of their list. With it, the records
            of a run that was interrupted, or whose disk was full, stay, to the last thousand, and a run of the same
            work can go on from them.
        resume: go on from them, if there are any.

    Attributes:
        count: records so far, those of an earlier run included.
        last_key: the last record's key, None before the first.
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
        self._committed = 0
        self._fails = False
        self._sums = array("I")
        self._files: dict[str, bytes] = {}
        self._refuse_existing()
        self._scratch = self.folder.with_name(f"{self.folder.name}.partial")
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

    def put(self, key: bytes, *value: bytes, checksum: int | None = None) -> None:
        """Add a record.

        Args:
            key: has to come after those before.
            value: the record's, whole or in parts.
            checksum: its `record_sum`, where it is known already.

        Raises:
            DataError: its key does not come after those before, or is too long.
            EngineError: (exit code 73) the disk is full, or the like.
        """
        if not 0 < len(key) <= MAX_KEY:
            raise DataError(f"the key {_shown(key)} has {len(key)} bytes; {_KEYS}")
        if self.last_key is not None and key <= self.last_key:
            if key == self.last_key:
                raise DataError(f"two records have the key {_shown(key)}")
            raise DataError(f"the key {_shown(key)} does not come after {_shown(self.last_key)}")
        try:
            self._records.put(key, value[0] if len(value) == 1 else b"".join(value))
            if (self.count + 1) % _COMMIT_EVERY == 0:
                self._records.commit()
        except (OSError, lmdb.Error) as error:
            self._committed = self._records.committed
            raise self._failure(error) from None
        self._sums.append(record_sum(key, *value) if checksum is None else checksum)
        self.last_key = key
        self.count += 1

    def add_file(self, name: str, content: bytes) -> None:
        """Put a file into the database's folder, where Caffe does not look at it."""
        self._files[name] = content

    def _refuse_existing(self) -> None:
        has_name = bool(self.folder.name)  # "/" and "." have none
        if not has_name or (self.folder.exists() and not self._replaces):
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
            self._begin(anew=earlier is None)
        except (OSError, lmdb.Error) as error:
            raise self._failure(error) from None

    def _begin(self, *, anew: bool) -> None:
        """Open the file of records; one that cannot be begun anew leaves nothing behind."""
        try:
            if anew and self._work is not None:
                (self._scratch / _WORK).write_text(self._work)
            self._records = RecordFile(self._scratch, durable=self._work is not None)
        except (OSError, lmdb.Error):
            if anew:
                shutil.rmtree(self._scratch, ignore_errors=True)
            raise

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
        self._sums.extend(earlier.sums())
        self.count = self._committed = len(earlier)
        self.last_key = earlier.key(self.count - 1)
        self.first_value = earlier.value(0)

    def _clear(self) -> None:
        for path in self._scratch.iterdir():
            if path.name != _LOCK:
                path.unlink()

    def _finish(self) -> None:
        try:
            self._records.finish()
            write_sums(self._scratch, self._sums)
            for name, content in self._files.items():
                (self._scratch / name).write_bytes(content)
            self._take_place()
        except (OSError, lmdb.Error) as error:
            self._committed = self._records.committed
            raise self._failure(error) from None

    def _take_place(self) -> None:
        old = self.folder.with_name(f"{self.folder.name}.{os.getpid()}.old")
        try:
            if self._replaces and self.folder.exists():
                self.folder.rename(old)
            self._scratch.rename(self.folder)
        except BaseException:
            if old.exists() and not self.folder.exists():
                old.rename(self.folder)
            raise
        self._finished = True
        for name in (_WORK, _LOCK):  # until then an interrupted run needs them
            (self.folder / name).unlink(missing_ok=True)
        flush_folder(self.folder.absolute().parent)
        if old.exists():
            try:
                shutil.rmtree(old)
            except OSError as error:
                _log.warning(
                    "the database that was replaced is left in '%s', since it cannot be removed: %s",
                    old,
                    error.strerror,
                )

    def _failure(self, error: Exception) -> EngineError:
        self._fails = True
        reason = getattr(error, "strerror", None) or error
        message = f"cannot write the database '{self.folder}': {reason}"
        hint = (
            f"{self._committed} records stay in '{self._scratch}'; --resume goes on from them" if self._stays else None
        )
        return EngineError(message, exit_code=EXIT_CANNOT_WRITE, hint=hint)

    @property
    def _stays(self) -> bool:
        """Whether records that were committed stay where the disk fails."""
        return self._fails and self._work is not None and self._committed > 0

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
                with contextlib.suppress(OSError, lmdb.Error):  # what was committed before stays
                    self._records.finish()
        except KeyboardInterrupt:
            interrupted = True
            raise
        finally:
            self._records.close()
            if not self._finished and not (interrupted and self._work is not None) and not self._stays:
                shutil.rmtree(self._scratch, ignore_errors=True)
            os.close(self._lock)


def _shown(key: bytes) -> str:
    return repr(key.decode(errors="backslashreplace"))


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
