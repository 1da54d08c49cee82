"""Images as the Datum records that Caffe's convert_imageset writes, byte for byte (Caffe: util/io.cpp).

A record of pixels has channels, height, width, data, label and `encoded: false`, in this order; one that holds an image
file has data, label and `encoded: true`.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from google.protobuf.message import Message

from mgcaffe.engine.data.images.decoding import decode_planes, image_shape
from mgcaffe.engine.data.images.linear_resizing import resize_bytes
from mgcaffe.engine.types import Array, Shape
from mgcaffe.errors import DataError
from mgcaffe.prototxt import Datum
from mgcaffe.prototxt.wire_format import varint

ENCODINGS = {"jpg": "JPEG", "jpeg": "JPEG", "png": "PNG", "bmp": "BMP", "tif": "TIFF", "tiff": "TIFF"}
"""The kinds of image files that can be written, by the endings of their names, with Pillow's names for them."""

# OpenCV's quality, with which Caffe writes JPEG files.
_JPEG_QUALITY = 95
_DATA_FIELD = b"\x22"
"""What stands before the length of field 4, `data`."""
_LABELS = range(-(2**31), 2**31)


@dataclass(frozen=True)
class ImageForm:
    """What becomes of each image.

    Attributes:
        color: three channels, or one.
        size: height and width to resize to; None keeps each image's own.
        encoded: store image files instead of pixels.
        encode_type: of which kind, a key of ENCODINGS; where it is empty, of the kind that each file's name says. A
            file that has this kind by its name is stored as it is, unless it is resized.
    """

    color: bool = True
    size: tuple[int, int] | None = None
    encoded: bool = False
    encode_type: str = ""


class ImageRecord(NamedTuple):
    """A record.

    Attributes:
        parts: its bytes, a serialized Datum, in parts, which saves joining them.
        shape: of the image, channels x height x width, as the form asks for it.
        stored_channels: how many channels a reader finds, which differs where a file is stored as it is.
    """

    parts: tuple[bytes, ...]
    shape: Shape
    stored_channels: int


def record_of_file(content: bytes, label: int, form: ImageForm, extension: str = "") -> ImageRecord:
    """Return the record of an image file.

    Args:
        content: the file's.
        label: the record's.
        form: what becomes of the image.
        extension: the end of the file's name, without a dot, which says its kind.

    Raises:
        DataError: it is no image, or of a kind that cannot be written.
    """
    if not form.encoded:
        return _raw(*decode_planes(content, form.color, form.size), label)
    if form.size is None and (not form.encode_type or _is_of_kind(extension, form.encode_type)):
        channels, *size = image_shape(content)
        value = _serialized(Datum(data=content, label=label, encoded=True))
        return ImageRecord((value,), (3 if form.color else 1, *size), channels)
    planes, shape = decode_planes(content, form.color, form.size)
    kind = form.encode_type or extension.lower()
    if kind not in ENCODINGS:
        raise DataError(f"an image file of type '{kind}' cannot be written; give --encode_type")
    return _encoded(planes, shape, label, kind)


def record_of_array(image: Array, label: int, form: ImageForm) -> ImageRecord:
    """Return the record of an image in memory.

    Args:
        image: uint8, height x width x channels (R, G, B), or x 1.
        label: the record's.
        form: what becomes of the image; `encode_type` has to be given where `encoded` is.
    """
    if form.size is not None:
        image = resize_bytes(np.ascontiguousarray(image), *form.size)
    planes = [image[:, :, channel].tobytes() for channel in reversed(range(image.shape[2]))]
    shape = (image.shape[2], image.shape[0], image.shape[1])
    if form.encoded:
        return _encoded(planes, shape, label, form.encode_type)
    return _raw(planes, shape, label)


def encode_image(planes: Sequence[bytes], shape: Shape, extension: str) -> bytes:
    """Return an image file, a JPEG file with OpenCV's quality.

    Args:
        planes: the bytes of each channel, in the order B, G, R, or one.
        shape: channels x height x width.
        extension: the kind, a key of ENCODINGS.

    Raises:
        DataError: an unknown kind.
    """
    from PIL import Image

    if extension not in ENCODINGS:
        raise DataError(f"an image file of type '{extension}' cannot be written")
    _, height, width = shape
    bands = [Image.frombytes("L", (width, height), plane) for plane in reversed(planes)]
    image = bands[0] if len(bands) == 1 else Image.merge("RGB", bands)
    buffer = io.BytesIO()
    kind = ENCODINGS[extension]
    image.save(buffer, kind, **({"quality": _JPEG_QUALITY} if kind == "JPEG" else {}))
    return buffer.getvalue()


def pixels_record(pixels: bytes, shape: Shape, label: int) -> bytes:
    """Return a record of pixels as Caffe's converters of MNIST and CIFAR write it: without the field `encoded`.

    Args:
        pixels: channels x height x width.
        shape: the same, as numbers.
        label: the record's.
    """
    channels, height, width = shape
    return _serialized(Datum(channels=channels, height=height, width=width, data=pixels, label=label))


def check_label(label: int) -> int:
    """Return a label if a Datum can hold it.

    Raises:
        DataError: it cannot.
    """
    if label not in _LABELS:
        raise DataError(f"label {label} does not fit into 32 bits")
    return label


def _is_of_kind(extension: str, kind: str) -> bool:
    """Say whether a file has a kind already by the end of its name (Caffe: io.cpp, matchExt)."""
    return extension.lower() == kind or (kind, extension.lower()) == ("jpg", "jpeg")


def _raw(planes: Sequence[bytes], shape: Shape, label: int) -> ImageRecord:
    # Serialized messages follow one another as their fields do, which saves copying the pixels into a message.
    tail = _serialized(Datum(label=label, encoded=False))
    return ImageRecord((_head(*shape), *planes, tail), shape, shape[0])


@functools.lru_cache(maxsize=256)
def _head(channels: int, height: int, width: int) -> bytes:
    """Return what stands before the pixels: the fields of the shape, the number of the next field and its length."""
    shape = _serialized(Datum(channels=channels, height=height, width=width))
    return shape + _DATA_FIELD + varint(channels * height * width)


def _encoded(planes: Sequence[bytes], shape: Shape, label: int, kind: str) -> ImageRecord:
    value = _serialized(Datum(data=encode_image(planes, shape, kind), label=label, encoded=True))
    return ImageRecord((value,), shape, len(planes))


def _serialized(datum: Message) -> bytes:
    return bytes(datum.SerializeToString(deterministic=True))
