"""Files that are whole or not there: written under another name, flushed to disk (not outputs), then renamed."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError

Content = bytes | Sequence[bytes | memoryview]
"""What a file is to hold: bytes, or pieces that are written one behind the other from where they lie."""
ASIDE = r"\.(\d+)\.tmp"
"""What `write_aside` adds to a file's name, with the number of its process, as a regular expression."""
_ABANDONED_S = 60.0
_KEPT_BY_FOLDER = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY)
"""Why a file may not be replaced and yet be ours to write: the folder is another user's, or the file is mounted."""


def pieces_of(content: Content) -> Sequence[bytes | memoryview]:
    """Return a content as pieces."""
    return [content] if isinstance(content, bytes) else content


def size_of(content: Content) -> int:
    """Return how many bytes a content has."""
    return sum(memoryview(piece).nbytes for piece in pieces_of(content))


def write_whole(path: str | os.PathLike[str], content: Content) -> None:
    """Write a file so that a crash at any moment leaves the old one or the new one, never a part.

    A link's target is replaced, not the link. What is no file (a terminal, a pipe) is written to as it is.

    Raises:
        OSError: the file cannot be written; what was there before is untouched.
    """
    target = Path(path)
    if _is_device(target):
        _write_into(target, pieces_of(content))
        return
    target = target.resolve()
    temporary = write_aside(target, content)
    try:
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    flush_folder(target.parent)


def overwrite(path: str | os.PathLike[str], content: Iterable[bytes]) -> None:
    """Write a file that was made for a user, and replace what was there once the new one is whole, with its mode.

    What is no file, or where the output goes anyway (/dev/stdout), is written to as it is. A file in a folder that is
    closed to us, or that is mounted by itself, is written in its place.

    Raises:
        OSError: the file cannot be written; what was there is untouched, unless it was written in its place.
    """
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if _is_device(target):
        _write_into(target, content)
        return
    if (stream := _standard_stream(target)) is not None:
        stream.flush()
        with os.fdopen(os.dup(stream.fileno()), "wb") as file:
            file.writelines(content)
        return
    is_there = target.exists()
    if is_there and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    target = Path(os.path.realpath(target))
    temporary = _aside(target)
    try:
        file = temporary.open("wb")
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG and not (is_there and error.errno in _KEPT_BY_FOLDER):
            raise
        _write_into(target, content)
        return
    try:
        with file:
            file.writelines(content)
        with suppress(OSError):
            shutil.copymode(target, temporary)
        try:
            temporary.replace(target)
        except OSError as error:
            if error.errno not in _KEPT_BY_FOLDER:
                raise
            shutil.copyfile(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def write_output(path: str | os.PathLike[str], content: str | bytes | Iterable[str], what: str = "") -> None:
    """Write what a command gives its user, text in UTF-8, by `overwrite`.

    Args:
        path: the file.
        content: all of it, or lines as they are made.
        what: what the message calls the file, with a space behind it.

    Raises:
        EngineError: (exit code 73) the file cannot be written.
    """
    pieces = [content] if isinstance(content, str | bytes) else content
    try:
        overwrite(path, (piece if isinstance(piece, bytes) else piece.encode() for piece in pieces))
    except OSError as error:
        reason = error.strerror or error
        raise EngineError(f"cannot write {what}{path}: {reason}", exit_code=EXIT_CANNOT_WRITE) from None


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _standard_stream(path: Path) -> TextIO | None:
    """Return the standard output or error if that is the file; None otherwise."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # it is closed, none, or no file
            if os.path.samestat(path.stat(), os.fstat(stream.fileno())):
                return stream
    return None


def _write_into(path: Path, content: Iterable[bytes | memoryview]) -> None:
    with path.open("wb") as file:
        file.writelines(content)


def _aside(target: Path) -> Path:
    # A name of its own, so that two runs that write one file never write into each other's.
    return target.with_name(f"{target.name}.{os.getpid()}.tmp")


def write_aside(target: Path, content: Content) -> Path:
    """Write what is to become `target` under another name beside it, and flush it to disk.

    Returns:
        The file, `<target>.<process number>.tmp`, for the caller to rename or remove.

    Raises:
        OSError: it cannot be written, and is not there.
    """
    temporary = _aside(target)
    try:
        with temporary.open("wb") as file:
            file.writelines(pieces_of(content))
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def is_abandoned(path: Path, process: int | None = None) -> bool:
    """Return whether nobody writes an unfinished file any more; this process does not.

    Args:
        path: the file.
        process: the number of the process that writes it, if it is known. If it runs on this machine, the file stays;
            it may run on another one, so the file also stays if it was written to within the last minute.
    """
    if process is not None and process != os.getpid() and _runs(process):
        return False
    try:
        return time.time() - path.stat().st_mtime > _ABANDONED_S
    except OSError:
        return False


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def flush_folder(folder: Path) -> None:
    """Make a rename survive a power cut; where a file system refuses, the files are in place still."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        return
    finally:
        os.close(descriptor)
