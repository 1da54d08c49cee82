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


class RemovedError(UsageError, AttributeError):
    """A name that Caffe had before its release 1.0."""


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


_MODE = "call caffe.{name}(...) before the net is made"
_PHASE = "remove the line: the phase is given where the net is made, Net(file, weights, caffe.TEST)"
_TRANSFORMER = (
    "use a caffe.io.Transformer, which has {name}; caffe.Classifier takes mean, input_scale, raw_scale, channel_swap,"
    " and has a `transformer`"
)
_REMOVED = {
    **dict.fromkeys(("set_mode_cpu", "set_mode_gpu", "set_device"), _MODE),
    **dict.fromkeys(("set_phase_train", "set_phase_test"), _PHASE),
    **dict.fromkeys(
        ("preprocess", "deprocess", "set_mean", "set_input_scale", "set_raw_scale", "set_channel_swap"), _TRANSFORMER
    ),
}


def removed(owner: str, name: str) -> RemovedError | None:
    """Return the error for an attribute that `owner` had before Caffe 1.0, with what to write instead, or None."""
    if name not in _REMOVED:
        return None
    return RemovedError(f"{owner} has no attribute '{name}' since Caffe 1.0", hint=_REMOVED[name].format(name=name))
