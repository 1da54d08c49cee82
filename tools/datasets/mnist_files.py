"""MNIST's files of images and labels (the IDX form), plain or packed by gzip.

    images: 00000803 count rows columns, then the pixels       labels: 00000801 count, then a byte a label

Numbers are big-endian and of 32 bits. (Caffe: examples/mnist/convert_mnist_data.cpp.)
"""

from __future__ import annotations

import gzip
import struct
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mgcaffe.errors import DataError, Location
from mgcaffe.errors.file_names import refuse_device

if TYPE_CHECKING:
    from mgcaffe.engine.types import Array

_IMAGES, _LABELS = 2051, 2049
_GZIP = b"\x1f\x8b"


class MnistFiles(NamedTuple):
    """What the two files hold.

    Attributes:
        images: uint8, count x rows x columns.
        labels: uint8, count.
    """

    images: Array
    labels: Array


def read_mnist(images: str, labels: str) -> MnistFiles:
    """Return the images and labels of two files.

    Raises:
        DataError: a file cannot be read, is another one, is cut off, or the counts differ.
    """
    pixels = _read(images, _IMAGES, "images", 3)
    numbers = _read(labels, _LABELS, "labels", 1)
    if len(pixels) != len(numbers):
        raise DataError(
            f"'{images}' holds {len(pixels)} images, but '{labels}' {len(numbers)} labels",
            hint="both files have to be of the same set, train or t10k",
        )
    return MnistFiles(pixels, numbers)


def _read(path: str, magic: int, what: str, axes: int) -> Array:
    import numpy as np

    content = _content(path)
    location = Location(path)
    head = 4 + 4 * axes
    if len(content) < head:
        raise DataError(f"the file has {len(content)} bytes, fewer than the head of MNIST's {what}", location=location)
    found, *shape = struct.unpack_from(f">{1 + axes}I", content)
    if found != magic:
        other = {_IMAGES: "images", _LABELS: "labels"}.get(found)
        raise DataError(
            f"no file of MNIST's {what}: it begins with {found}, not {magic}",
            location=location,
            hint=f"this is a file of {other}: the images come first, then the labels" if other else None,
        )
    size = 1
    for length in shape:
        size *= length
    if not size:
        raise DataError(f"its head says {' x '.join(map(str, shape))}", location=location)
    if len(content) != head + size:
        raise DataError(
            f"its head says {' x '.join(map(str, shape))}, which takes {head + size} bytes, but it has {len(content)}",
            location=location,
            hint="download it again",
        )
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def _content(path: str) -> bytes:
    try:
        refuse_device(path)
        content = Path(path).read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP) else content
    except FileNotFoundError as error:
        raise DataError(
            f"'{path}' does not exist", hint=f"relative paths start from the working directory, {Path.cwd()}"
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"cannot be unpacked: {error}", location=Location(path), hint="download it again") from error
    except OSError as error:
        raise DataError(f"'{path}' cannot be read: {error.strerror}") from error
