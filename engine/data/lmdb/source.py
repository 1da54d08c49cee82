"""A folder with an LMDB database as a list of records, in the order of their keys.

The tree is walked once when the source is opened, which checks every page of it (see lmdb_pages); then any record can
be had by its number. Values are read with `pread`, so damage is an error and never the end of the process, and ranks
on one machine share the pages that they read. Where our converters left a sum file, each record is checked against it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from weakref import finalize

from mgcaffe.engine.data.leveldb import is_leveldb
from mgcaffe.engine.data.lmdb import meta_pages, pages
from mgcaffe.engine.data.lmdb.sums import read_sums, record_sum
from mgcaffe.engine.data.record_source import RecordSource, database_folder, opened_once
from mgcaffe.errors import DataError


class LmdbSource(RecordSource):
    """The records of an LMDB database. Made by `open_lmdb`; closed when nothing refers to it any more.

    Attributes:
        has_sums: whether records are checked against a sum file.
    """

    def __init__(self, folder: str, *, without_sums: bool = False) -> None:
        path = Path(folder) / "data.mdb"
        try:
            self._file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            raise DataError(f"data source '{folder}': data.mdb cannot be read: {error.strerror}") from error
        finalize(self, os.close, self._file)
        try:
            self._index = pages.read_index(self._file)
        except meta_pages.Damage as error:
            cut = error.message.startswith("is cut off")
            what = error.message if cut else f"cannot be opened as LMDB: {error.message}"
            raise DataError(f"data source '{folder}' {what}", hint="copy it again, or make it again") from error
        super().__init__(folder, self._index.keys, self._index.key_ends)
        if not len(self):
            raise DataError(f"data source '{folder}' holds no records")
        self._sums = None if without_sums else read_sums(Path(folder), len(self))
        self.has_sums = self._sums is not None

    def value(self, number: int) -> bytes:
        """Return the value of a record; see RecordSource."""
        try:
            value = pages.read_value(self._file, self._index, number)
        except meta_pages.Damage as error:
            raise DataError(f"{self.describe(number)} cannot be read: {error.message}") from error
        if self._sums is not None and record_sum(self.key(number), value) != self._sums[number]:
            raise DataError(f"{self.describe(number)} is damaged: its sum is not the one of its sum file")
        return value

    def values(self, numbers: Sequence[int]) -> list[bytes]:
        """Return the values of these records.

        Raises:
            DataError: one cannot be read.
        """
        self.check_unchanged()
        return [self.value(number) for number in numbers]

    def sums(self) -> Iterator[int]:
        """Return the sum of each record, in order, from what the file holds now."""
        return (record_sum(self.key(number), self.value(number)) for number in range(len(self)))

    def check_unchanged(self) -> None:
        """Make sure that the database was not written to since it was opened: its pages may hold anything then.

        Raises:
            DataError: somebody did.
        """
        meta = self._index.meta
        try:
            found = meta_pages.read_transaction(self._file, meta.page_size)
        except meta_pages.Damage as error:
            raise DataError(f"data source '{self.name}' cannot be read any more: {error.message}") from error
        if found != meta.transaction:
            raise DataError(
                f"data source '{self.name}' changed while it was being read (transaction {found} instead of"
                f" {meta.transaction})",
                hint="train from a copy of a database that is still written to",
            )


def open_lmdb(folder: str, *, without_sums: bool = False) -> LmdbSource:
    """Return the database in `folder` (relative to the working directory); layers that read the same one share it.

    Args:
        folder: where `data.mdb` lies.
        without_sums: leave its sum file unread.

    Raises:
        DataError: there is no such folder, it holds no LMDB, or the LMDB is empty or damaged.
    """
    check_folder(folder)
    if without_sums:
        return LmdbSource(folder, without_sums=True)
    return opened_once(Path(folder) / "data.mdb", lambda: LmdbSource(folder))


def check_folder(folder: str) -> None:
    """Make sure that `folder` is the folder of an LMDB that may be read.

    Raises:
        DataError: it is not; a LevelDB comes with the command that converts it.
    """
    path = database_folder(folder)
    if (path / "data.mdb").is_file():
        if not os.access(path / "data.mdb", os.R_OK):
            raise DataError(f"data source '{folder}': data.mdb may not be read (permission denied)")
        return
    if is_leveldb(path):
        target = path.with_name(f"{path.name.removesuffix('_leveldb')}_lmdb")
        raise DataError(
            f"'{folder}' is a LevelDB database, and only an LMDB can be read here",
            hint=f"engine convert_leveldb {quote(folder)} {quote(str(target))} makes an LMDB of it",
        )
    raise DataError(f"data source '{folder}' is a folder without an LMDB database (it has no data.mdb)")
