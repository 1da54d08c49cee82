"""Arrays in and out of Caffe's messages, and images in and out of arrays (Caffe: io.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from mgcaffe.engine.data.datum import decode_datum
from mgcaffe.engine.types import Array
from mgcaffe.errors import DataError, PrototxtError
from mgcaffe.prototxt import BlobProto, BlobProtoVector, Datum, blob_array, fill_blob
from mgcaffe.pycaffe.images import load_image, oversample, resize_image
from mgcaffe.pycaffe.problems import ArgumentError, ArgumentTypeError
from mgcaffe.pycaffe.proto import caffe_pb2
from mgcaffe.pycaffe.transformer import Transformer

__all__ = [
    "Transformer",
    "array_to_blobproto",
    "array_to_datum",
    "arraylist_to_blobprotovector_str",
    "blobproto_to_array",
    "blobprotovector_str_to_arraylist",
    "caffe_pb2",
    "datum_to_array",
    "load_image",
    "oversample",
    "resize_image",
]


def blobproto_to_array(blob: BlobProto, return_diff: bool = False) -> Array:
    """Return the values of a BlobProto (or its gradient) in its shape, as float64.

    Raises:
        ArgumentError: there are more or fewer values than the shape says.
    """
    try:
        return np.array(blob_array(blob, diff=return_diff), np.float64)
    except PrototxtError as error:
        raise ArgumentError(error.message) from None


def array_to_blobproto(arr: Any, diff: Any = None) -> BlobProto:
    """Return a BlobProto that holds an array of any shape, and a gradient beside it if one is given."""
    blob = BlobProto()
    fill_blob(blob, np.asarray(arr, np.float32))
    if diff is not None:
        fill_blob(blob, np.asarray(diff, np.float32), diff=True)
    return blob


def arraylist_to_blobprotovector_str(arraylist: Iterable[Any]) -> bytes:
    """Return arrays as a serialized BlobProtoVector."""
    vector = BlobProtoVector()
    vector.blobs.extend(array_to_blobproto(array) for array in arraylist)
    return bytes(vector.SerializeToString())


def blobprotovector_str_to_arraylist(text: bytes) -> list[Array]:
    """Return the arrays in a serialized BlobProtoVector."""
    return [blobproto_to_array(blob) for blob in BlobProtoVector.FromString(text).blobs]


def array_to_datum(arr: Any, label: int | None = None) -> Datum:
    """Return a Datum that holds an image.

    Args:
        arr: channels x height x width; uint8 is stored as bytes, everything else as floats.
        label: the record's label, a whole number.

    Raises:
        ArgumentError: the array has not three axes.
        ArgumentTypeError: the label is no whole number.
    """
    array = np.asarray(arr)
    if array.ndim != 3:
        raise ArgumentError(f"a Datum holds an array of 3 axes (channels, height, width), not of {array.ndim}")
    datum = Datum(channels=array.shape[0], height=array.shape[1], width=array.shape[2])
    if array.dtype == np.uint8:
        datum.data = array.tobytes()
    else:
        datum.float_data.extend(array.astype(float).ravel())
    if label is not None:
        datum.label = _whole(label)
    return datum


def _whole(label: Any) -> int:
    """Return a label as an int.

    Raises:
        ArgumentTypeError: it is a fraction, or no number.
    """
    try:
        whole = int(label)
    except (TypeError, ValueError, OverflowError):
        whole = None
    if whole is None or whole != label:
        raise ArgumentTypeError(
            f"a Datum's label is a whole number, not {label!r}",
            hint="keep other labels in HDF5 files, or as images of a second database",
        )
    return whole


def datum_to_array(datum: Datum) -> Array:
    """Return the image in a Datum, channels x height x width: uint8, or float64; an encoded one is decoded, to BGR.

    Raises:
        ArgumentError: it does not hold what it says.
    """
    try:
        image = decode_datum(datum.SerializeToString())[0]
    except DataError as error:
        raise ArgumentError(error.message) from None
    return np.array(image, np.uint8 if image.dtype == np.uint8 else np.float64)
