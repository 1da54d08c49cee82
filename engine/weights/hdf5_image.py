"""HDF5 files as bytes, so that they are written whole, and read with errors of our own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any

SIGNATURE = b"\x89HDF\r\n\x1a\n"


def is_hdf5(path: str | os.PathLike[str]) -> bool:
    """Say whether a file is HDF5, by its content; False for a file that cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(SIGNATURE)) == SIGNATURE
    except OSError:
        return False


def make_image(fill: Callable[[Any], None]) -> list[memoryview]:
    """Make the content of an HDF5 file, as one piece.

    Args:
        fill: is given the open, empty h5py.File.
    """
    import h5py

    image = BytesIO()
    with h5py.File(image, "w") as file:
        fill(file)
    return [image.getbuffer()]


@contextmanager
def open_image(path: str | os.PathLike[str], fail: Callable[[str], Exception]) -> Iterator[Any]:
    """Open an HDF5 file to read it, with `reading` around whatever reads.

    Args:
        path: the file.
        fail: makes the error to be raised out of h5py's reason.
    """
    import h5py

    with reading(fail):
        file = h5py.File(path, "r")
    with file:
        yield file


@contextmanager
def reading(fail: Callable[[str], Exception]) -> Iterator[None]:
    """Turn what h5py raises for a damaged file into the error that `fail` makes."""
    try:
        yield
    except (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, MemoryError) as error:
        raise fail(f"cut short or damaged ({error})") from None
