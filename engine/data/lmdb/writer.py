"""Writes LMDB databases as Caffe's tools do, and the sum file beside them.

A database appears in its folder complete or not at all: it is written under another name in the same place.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import TracebackType

import lmdb

from mgcaffe.engine.data.lmdb.sums import record_sum, write_sums
from mgcaffe.errors import EXIT_CANNOT_WRITE, DataError, EngineError

_COMMIT_EVERY = 1000
_FIRST_MAP_SIZE = 1 << 26


class LmdbWriter:
    """Takes records and leaves a database behind when its `with` block ends well.

    Args:
        folder: the database's; must not exist, unless it is to be replaced.
        replace: take the place of the database that is there.

    Raises:
        EngineError: the folder exists, or (exit code 73) cannot be written.
    """

    def __init__(self, folder: str | Path, *, replace: bool = False) -> None:
        self.folder = Path(folder)
        self.count = 0
        if self.folder.exists() and not replace:
            raise EngineError(
                f"'{folder}' exists already", exit_code=EXIT_CANNOT_WRITE, hint="remove it, or choose another name"
            )
        self._scratch = self.folder.with_name(f"{self.folder.name}.{os.getpid()}.tmp")
        self._pending: list[tuple[bytes, bytes]] = []
        self._sums: dict[bytes, int] = {}
        try:
            self._scratch.mkdir()
            self._environment = lmdb.open(str(self._scratch), map_size=_FIRST_MAP_SIZE, lock=False)
        except (OSError, lmdb.Error) as error:
            raise self._failure(error) from None

    def put(self, key: bytes, value: bytes) -> None:
        """Add a record.

        Raises:
            DataError: there is one of that key.
            EngineError: (exit code 73) the disk is full, or the like.
        """
        if key in self._sums:
            raise DataError(f"two records have the key {key.decode(errors='backslashreplace')!r}")
        self._sums[key] = record_sum(key, value)
        self._pending.append((key, value))
        self.count += 1
        if len(self._pending) == _COMMIT_EVERY:
            self._commit()

    def _commit(self) -> None:
        while self._pending:
            try:
                with self._environment.begin(write=True) as transaction:
                    for key, value in self._pending:
                        transaction.put(key, value)
            except lmdb.MapFullError:
                self._environment.set_mapsize(2 * self._environment.info()["map_size"])
                continue
            except lmdb.Error as error:
                raise self._failure(error) from None
            self._pending = []

    def _finish(self) -> None:
        try:
            self._commit()
            self._environment.sync(True)
            self._environment.close()
            write_sums(self._scratch, (self._sums[key] for key in sorted(self._sums)))
            if self.folder.exists():
                shutil.rmtree(self.folder)
            self._scratch.replace(self.folder)
        except (OSError, lmdb.Error) as error:
            raise self._failure(error) from None

    def _failure(self, error: Exception) -> EngineError:
        reason = getattr(error, "strerror", None) or error
        return EngineError(f"cannot write the database '{self.folder}': {reason}", exit_code=EXIT_CANNOT_WRITE)

    def __enter__(self) -> LmdbWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._environment.close()
            shutil.rmtree(self._scratch, ignore_errors=True)
