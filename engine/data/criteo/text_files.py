"""Text files, plain or packed by gzip, whose bytes can be read at any place.

A gzip file can only be unpacked from its beginning. So the unpacking is copied every 16 MB while the file is gone
through the first time (a copy takes some 40 kB), and a place is reached from the nearest copy before it. Reading on
where the last read ended unpacks nothing twice.
"""

from __future__ import annotations

import bisect
import copy
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from weakref import finalize

from mgcaffe.errors import DataError
from mgcaffe.errors.file_names import refuse_device

_GZIP = b"\x1f\x8b"
_WITH_GZIP_HEADER = 31
_PACKED_PIECE = 1 << 18
_PIECE = 1 << 20
_COPY_EVERY = 1 << 24


class TextFile(Protocol):
    """The bytes of a file. It is used by one thread at a time.

    Attributes:
        name: as the user wrote it.
        packed: whether going back in it takes time.
    """

    name: str
    packed: bool

    def pieces(self) -> Iterator[bytes]:
        """Return all bytes in order, some at a time; called once, before anything is read."""

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`, exclusive, fewer where the file ends before.

        Raises:
            DataError: they cannot be read.
        """

    def check_unchanged(self) -> None:
        """Make sure that the file was not written to since it was opened.

        Raises:
            DataError: it was.
        """


def open_text(name: str) -> TextFile:
    """Return a file; its first bytes say whether it is packed.

    Raises:
        DataError: it does not exist, is no file, or may not be read.
    """
    try:
        refuse_device(name)
        if not stat.S_ISREG(Path(name).stat().st_mode):
            raise DataError(f"data source '{name}' is no file", hint="name a file of rows in Criteo's format")
        file = os.open(name, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except FileNotFoundError as error:
        raise DataError(
            f"data source '{name}' does not exist",
            hint=f"relative paths start from the working directory, {Path.cwd()}",
        ) from error
    except OSError as error:
        raise DataError(f"data source '{name}' cannot be read: {error.strerror}") from error
    opened = _File(name, file)
    return GzipFile(opened) if opened.read(0, len(_GZIP)) == _GZIP else PlainFile(opened)


class _File:
    """An open file that must not change while it is used; closed when nothing refers to it any more."""

    def __init__(self, name: str, file: int) -> None:
        self.name, self._file = name, file
        finalize(self, os.close, file)
        self._state = self._now()

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`, fewer where the file ends before."""
        pieces = []
        try:
            while start < end and (piece := os.pread(self._file, end - start, start)):
                pieces.append(piece)
                start += len(piece)
        except OSError as error:
            raise DataError(f"data source '{self.name}' cannot be read: {error.strerror}") from error
        return b"".join(pieces)

    def check_unchanged(self) -> None:
        """Make sure that the file was not written to since it was opened.

        Raises:
            DataError: it was.
        """
        if self._now() != self._state:
            raise DataError(
                f"data source '{self.name}' changed while it was being read",
                hint="train from a copy of a file that is still written to",
            )

    def _now(self) -> tuple[int, int]:
        status = os.fstat(self._file)
        return status.st_size, status.st_mtime_ns


class PlainFile:
    """A file that holds its text as it is. See TextFile."""

    packed = False

    def __init__(self, file: _File) -> None:
        self.name, self._file = file.name, file

    def pieces(self) -> Iterator[bytes]:
        """Return all bytes. See TextFile."""
        start = 0
        while piece := self._file.read(start, start + _PIECE):
            yield piece
            start += len(piece)

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes of a range. See TextFile."""
        return self._file.read(start, end)

    def check_unchanged(self) -> None:
        """Look at size and time. See TextFile."""
        self._file.check_unchanged()


class _Unpacking:
    """A gzip file being unpacked from its beginning, one piece after the other.

    Attributes:
        at: how many bytes of text have come out.
    """

    def __init__(self, file: _File) -> None:
        self.at = 0
        self._file = file
        self._packed_at = 0
        self._waiting = b""
        self._begin_member()

    def copy(self) -> _Unpacking:
        """Return another one that goes on from here."""
        twin = copy.copy(self)
        twin._member = self._member.copy()
        return twin

    def next_piece(self) -> bytes:
        """Return up to 1 MB more of the text; nothing at its end.

        Raises:
            DataError: the file is damaged or cut off.
        """
        while self._waiting or self._read_on():
            try:
                piece = self._member.decompress(self._waiting, _PIECE)
            except zlib.error as error:
                raise self._problem("is damaged") from error
            self._inside = True
            if self._member.eof:  # another member may follow, and zeros fill up a tape
                self._waiting = self._member.unused_data.lstrip(b"\0")
                self._begin_member()
            else:
                self._waiting = self._member.unconsumed_tail
            if piece:
                self.at += len(piece)
                return piece
        if self._inside:
            raise self._problem("is cut off")
        return b""

    def _begin_member(self) -> None:
        self._member = zlib.decompressobj(_WITH_GZIP_HEADER)
        self._inside = False

    def _read_on(self) -> bool:
        """Read the next packed bytes; return whether there are any."""
        self._waiting = self._file.read(self._packed_at, self._packed_at + _PACKED_PIECE)
        self._packed_at += len(self._waiting)
        if not self._inside:
            self._waiting = self._waiting.lstrip(b"\0")
        return bool(self._waiting)

    def _problem(self, what: str) -> DataError:
        name = self._file.name
        return DataError(f"data source '{name}', a gzip file, {what}", hint="copy it again, or make it again")


class GzipFile:
    """A file whose text is packed by gzip. See TextFile and the module's text."""

    packed = True

    def __init__(self, file: _File) -> None:
        self.name, self._file = file.name, file
        self._unpacking = _Unpacking(file)
        self._copies = [self._unpacking.copy()]
        self._piece = b""

    def pieces(self) -> Iterator[bytes]:
        """Return all bytes, and keep a copy of the unpacking now and then. See TextFile."""
        going = self._copies[0].copy()
        while piece := going.next_piece():
            yield piece
            if going.at >= self._copies[-1].at + _COPY_EVERY:
                self._copies.append(going.copy())

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes of a range. See TextFile."""
        nearest = self._copies[bisect.bisect_right(self._copies, start, key=lambda each: each.at) - 1]
        if self._begins_at() > start or self._unpacking.at < nearest.at:
            self._unpacking, self._piece = nearest.copy(), b""
        found = []
        while start < end:
            if start >= self._unpacking.at:
                self._piece = self._unpacking.next_piece()
                if not self._piece:
                    break
                continue
            begins = self._begins_at()
            found.append(self._piece[start - begins : end - begins])
            start += len(found[-1])
        return b"".join(found)

    def check_unchanged(self) -> None:
        """Look at size and time. See TextFile."""
        self._file.check_unchanged()

    def _begins_at(self) -> int:
        """Return where the latest piece lies in the text."""
        return self._unpacking.at - len(self._piece)
