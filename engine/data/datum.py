"""Datum records, as convert_imageset and its relatives write them, taken apart into image and label."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from mgcaffe.engine.data.images.decoding import decode_image
from mgcaffe.engine.types import Array
from mgcaffe.errors import DataError
from mgcaffe.prototxt import Datum


class DatumRecord(NamedTuple):
    """A record taken apart.

    Attributes:
        image: channels x height x width; uint8, or float32 where the record holds floats; read-only.
        label: the record's.
        encoded: whether the image had to be decoded.
    """

    image: Array
    label: int
    encoded: bool


def decode_datum(record: bytes, color: bool | None = None) -> tuple[Array, int]:
    """Return the image of a record, channels x height x width, and its label. See decode_datum_record."""
    image, label, _ = decode_datum_record(record, color)
    return image, label


def decode_datum_record(record: bytes, color: bool | None = None) -> DatumRecord:
    """Take a record apart.

    Args:
        record: a serialized Datum: raw bytes, floats, or an encoded image.
        color: True to decode images to three channels, False to one. Records of pixels keep their channels, as in
            Caffe.

    Raises:
        DataError: the record is damaged.
    """
    try:
        datum = Datum.FromString(record)
    except DecodeError as error:
        raise DataError(f"it is not a Datum message ({error})") from error
    if datum.encoded:
        return DatumRecord(decode_image(datum.data, color), datum.label, True)
    return DatumRecord(_raw_image(datum), datum.label, False)


def _raw_image(datum: Datum) -> Array:
    shape = (datum.channels, datum.height, datum.width)
    data = datum.data
    values = np.frombuffer(data, np.uint8) if data else np.array(datum.float_data, np.float32)
    if min(shape) < 1 or values.size != shape[0] * shape[1] * shape[2]:
        raise DataError(
            f"it says that its shape is {shape[0]} x {shape[1]} x {shape[2]}, but holds {values.size} values"
        )
    return values.reshape(shape)
