"""The data file of an LMDB that is being written: liblmdb, through a map of the file that is allocated ahead.

Through a map, a value is copied once, into the kernel's page cache; otherwise liblmdb copies it into pages of its own
first, and writes these. But a page of a map that a full disk has no place for ends the process (SIGBUS), so the file
is allocated before it is written to. Where a file system cannot do that, liblmdb writes without a map.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import lmdb

_PAGE_HEAD = 16
_FIRST_MAP_SIZE = 1 << 28
_ALLOCATED_AHEAD = 1 << 26
_BYTES_OF_COMMIT = 1 << 25
_PAGES_OF_COMMIT = 64
"""More than a commit takes for the branch of the tree that changes and the list of free pages."""
_PAGES_OF_KEY = 2
"""The most that a record takes besides its value: a leaf page, and a branch page that splits."""
_CANNOT_ALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class RecordFile:
    """Takes records in the order of their keys. What was committed stays if the process is killed.

    Args:
        folder: has the file, or gets one. Records that are there stay.
        durable: what was committed stays after a power cut as well; each commit waits for the disk.

    Attributes:
        committed: how many records were committed, those of earlier processes included.

    Raises:
        OSError, lmdb.Error: the file cannot be written; so in every method.
    """

    def __init__(self, folder: Path, *, durable: bool) -> None:
        self._file = os.open(folder / "data.mdb", os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            self._is_mapped = _can_allocate(self._file)
            self._environment = lmdb.open(
                str(folder), map_size=_FIRST_MAP_SIZE, lock=False, writemap=self._is_mapped, sync=durable
            )
        except BaseException:
            os.close(self._file)
            raise
        self._page = int(self._environment.stat()["psize"])
        self._transaction: lmdb.Transaction | None = None
        self._allocated = 0
        self._map_size = int(self._environment.info()["map_size"])
        self._note_commit()
        self._is_open = True

    def put(self, key: bytes, value: bytes) -> None:
        """Add a record; its key has to come after those before."""
        size = self._page * (_PAGES_OF_KEY - (-(_PAGE_HEAD + len(value)) // self._page))
        in_memory = 0 if self._is_mapped else self._needed + size - self._committed_bytes
        if in_memory > _BYTES_OF_COMMIT:
            self.commit()
        self._make_place(size)
        if self._transaction is None:
            self._transaction = self._environment.begin(write=True)
        self._transaction.put(key, value, append=True)
        self._needed += size

    def commit(self) -> None:
        """Commit the records so far."""
        transaction, self._transaction = self._transaction, None
        if transaction is not None:
            transaction.commit()
        self._note_commit()

    def finish(self) -> None:
        """Commit, and have all of it on the disk, in a file that ends with the last page in use."""
        self.commit()
        self._environment.sync(True)
        self._cut_off()
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file, which holds what was committed."""
        if self._transaction is not None:
            self._transaction.abort()
        try:
            if self._is_open:
                self._cut_off()
        finally:
            os.close(self._file)

    def _note_commit(self) -> None:
        self.committed = int(self._environment.stat()["entries"])
        self._committed_bytes = self._needed = self._end()

    def _end(self) -> int:
        """Return how many bytes the pages fill that were committed."""
        return (int(self._environment.info()["last_pgno"]) + 1) * self._page

    def _make_place(self, size: int) -> None:
        """Make sure that map and disk have place for a record, and for a commit after it."""
        end = self._needed + size + _PAGES_OF_COMMIT * self._page
        if end > self._map_size:
            self.commit()  # the map cannot be replaced within a transaction
            self._map_size = max(2 * self._map_size, end)
            self._environment.set_mapsize(self._map_size)
        if self._is_mapped and end > self._allocated:
            self._allocate(end)

    def _allocate(self, end: int) -> None:
        """Allocate the file up to a place at least."""
        ahead = max(end, self._allocated + _ALLOCATED_AHEAD)
        try:
            os.posix_fallocate(self._file, self._allocated, ahead - self._allocated)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            ahead = end  # it may be the disk's last place that is needed
            os.posix_fallocate(self._file, self._allocated, ahead - self._allocated)
        self._allocated = ahead

    def _cut_off(self) -> None:
        """Close the environment, and cut off what was allocated and is not in use."""
        end, self._is_open = self._end(), False
        self._environment.close()
        os.ftruncate(self._file, end)


def _can_allocate(file: int) -> bool:
    """Return whether the file system can allocate pages of a file before they are written.

    Raises:
        OSError: the disk is full, or the like.
    """
    if not hasattr(os, "posix_fallocate"):
        return False
    size = os.fstat(file).st_size
    try:
        os.posix_fallocate(file, 0, 1)
    except OSError as error:
        if error.errno in _CANNOT_ALLOCATE:
            return False
        raise
    finally:
        os.ftruncate(file, size)
    return True
