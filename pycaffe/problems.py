"""Errors that scripts catch by the Python class that pycaffe raised, and that belong to our own tree too."""

from __future__ import annotations

import os
from pathlib import Path

from mgcaffe.errors import DataError, Location, NetError, PrototxtError, UsageError


class ArgumentError(UsageError, ValueError):
    """An argument that does not fit."""


class UnknownBlobError(ArgumentError, KeyError):
    """A name that no blob of the net has."""


class ArgumentTypeError(UsageError, TypeError):
    """An argument of a kind that does not fit."""


class UnknownTopError(UnknownBlobError, AttributeError):
    """A name that no top of a NetSpec has."""


class ImageFileError(DataError, OSError):
    """An image that cannot be read."""


class AxisMismatchError(NetError):
    """Two coordinate maps that belong to different axes (coord_map)."""


class UndefinedMapError(NetError):
    """A layer whose coordinates map to nothing (coord_map)."""


class UnconnectedTopsError(NetError, RuntimeError):
    """Two tops between which no coordinate map leads (coord_map)."""


class CropError(NetError, AssertionError):
    """A crop that would need scaling, padding, or a fraction of a pixel (coord_map)."""


class CannotOpenError(PrototxtError, RuntimeError):
    """A net, solver or caffemodel that cannot be opened."""


def check_file(path: str | os.PathLike[str]) -> None:
    """Make sure that a file can be opened (Caffe: _caffe.cpp, CheckFile).

    Raises:
        CannotOpenError: it cannot; says why.
    """
    try:
        Path(path).open("rb").close()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise CannotOpenError(
            f"could not open file: {reason}",
            location=Location(os.fspath(path)),
            hint=f"relative paths start from the working directory, {Path.cwd()}",
        ) from None
