"""Which texts can be the name of a file: one check for every name that a user, a net or a list gives.

The operating system's own answers differ by call: a NUL byte is a ValueError without a place, a name that is too long
is sometimes an OSError and sometimes simply no such file.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_PART_BYTES = 255
"""The longest name of a file or folder on Linux's usual file systems."""
MAX_PATH_BYTES = 4095
"""The longest path that Linux takes."""

_MAX_SHOWN = 60


def what_is_wrong_with_name(path: str, ending: str = "") -> str | None:
    """Say in words why a text can't be a file's name; None if it can.

    Args:
        path: the text; an empty one is not looked at.
        ending: what is written behind it, as behind the prefix of a snapshot.
    """
    try:
        encoded = os.fsencode(path + ending)
    except UnicodeEncodeError:
        return "it holds characters that no file's name can have"
    if b"\0" in encoded:
        return "it holds a NUL byte, which no file's name can have"
    behind = f" with '{ending}' behind it" if ending else ""
    longest = max(map(len, encoded.split(b"/")))
    if longest > MAX_PART_BYTES:
        return f"a part of it is {longest} bytes long{behind}, and the name of a file has at most {MAX_PART_BYTES}"
    if len(encoded) > MAX_PATH_BYTES:
        return f"it is {len(encoded)} bytes long{behind}, and a path has at most {MAX_PATH_BYTES}"
    return None


def refuse_device(path: str | os.PathLike[str]) -> None:
    """Make sure that reading a path comes to an end: a device such as /dev/zero has none.

    Raises:
        OSError: it is a device or a socket, or cannot be looked at; a path that does not exist is left to the reader.
    """
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISSOCK(mode):
        raise OSError(errno.EINVAL, "it is a device or a socket, not a file")


def is_there(name: str) -> bool:
    """Say whether there is a file or folder of this name; what cannot be looked at is none."""
    try:
        return what_is_wrong_with_name(name) is None and Path(name).exists()
    except OSError:
        return False


def found_name(name: str) -> str:
    """Return the name by which a file or folder is found that a net or solver names.

    A name that is not UTF-8 is read from there as Latin-1 (prototxt/foreign_text.py). So where nothing has the name in
    UTF-8, and something has it in these bytes, it is that; a name that nothing has is returned as it is.
    """
    if name.isascii() or is_there(name):
        return name
    try:
        other = os.fsdecode(name.encode("latin-1"))
    except UnicodeEncodeError:
        return name
    return other if is_there(other) else name


def shown_name(path: str) -> str:
    """Return a name for a message: shortened where it is long, with NUL bytes and the like written out."""
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in path[:_MAX_SHOWN])
    return text if len(path) <= _MAX_SHOWN else f"{text}..."
