"""Moves arrays into and out of BlobProto messages, fast enough for the weights of any net.

protobuf's own repeated fields take a Python float at a time: 17 s for the 61 million of AlexNet. The bytes of
a packed field are those of the array, so they are handed over as a whole, through the wire format.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt.messages import BlobProto, BlobShape, has_field, message_facts

MAX_AXES = 32
_LEGACY_AXES = ("num", "channels", "height", "width")
_MAX_BYTES = 2**31 - 1024
_RAW_TYPES = {"DOUBLE": "<f8", "FLOAT": "<f4", "FLOAT16": "<f2"}


def blob_shape(proto: BlobProto) -> tuple[int, ...]:
    """Give the shape of a blob. The old fields num, channels, height and width win (Caffe: blob.cpp).

    Raises:
        PrototxtError: an axis is negative, or there are more than 32.
    """
    if any(has_field(proto, name) for name in _LEGACY_AXES):
        shape = tuple(getattr(proto, name) for name in _LEGACY_AXES)
    elif len(proto.shape.dim) > MAX_AXES:
        raise PrototxtError(f"a blob has {len(proto.shape.dim)} axes; the most is {MAX_AXES}")
    else:
        shape = tuple(proto.shape.dim)
    if any(axis < 0 for axis in shape):
        raise PrototxtError(f"a blob has a negative axis: {_shown(shape)}")
    return shape


def blob_array(proto: BlobProto, *, diff: bool = False) -> NDArray[Any]:
    """Give the values of a blob as an array of its shape.

    Args:
        proto: the BlobProto.
        diff: gives the gradient stored beside the values instead.

    Returns:
        float64 where the blob holds doubles (which win over floats, as in Caffe), otherwise float32. It may
        be read-only. NVIDIA's raw storage is read too, its 16-bit floats as float32.

    Raises:
        PrototxtError: the shape is impossible, or there are more or fewer values than it says.
    """
    shape = blob_shape(proto)
    name = "diff" if diff else "data"
    values = _values(proto, name)
    count = math.prod(shape)
    if count != values.size:
        raise PrototxtError(
            f"a blob of shape {_shown(shape)} holds {values.size} values in '{name}' instead of {count}"
        )
    return values.reshape(shape)


def fill_blob(proto: BlobProto, array: NDArray[Any], *, diff: bool = False) -> None:
    """Put an array into a blob, with its shape. What else the blob holds stays.

    Args:
        proto: the BlobProto.
        array: float64 is stored as doubles, everything else as float32.
        diff: stores it as the gradient beside the values.

    Raises:
        PrototxtError: the array is larger than protobuf's 2 GiB, or has more than 32 axes.
    """
    is_double = array.dtype == np.float64
    flat = np.ascontiguousarray(array, dtype="<f8" if is_double else "<f4")
    if flat.nbytes > _MAX_BYTES or array.ndim > MAX_AXES:
        raise PrototxtError(f"an array of shape {_shown(array.shape)} does not fit into a blob of at most 2 GiB")
    name = "diff" if diff else "data"
    for stale in (name, f"double_{name}", *_LEGACY_AXES):
        proto.ClearField(stale)
    proto.shape.CopyFrom(BlobShape(dim=array.shape))
    number = message_facts(proto).fields[f"double_{name}" if is_double else name].number
    proto.MergeFromString(b"".join((_varint(number << 3 | 2), _varint(flat.nbytes), flat.tobytes())))


def _values(proto: BlobProto, name: str) -> NDArray[Any]:
    for field, dtype in ((f"double_{name}", "<f8"), (name, "<f4")):
        if len(getattr(proto, field)):
            return np.frombuffer(_packed_bytes(proto, field), dtype=dtype)
    if has_field(proto, f"raw_{name}"):
        return _raw_values(proto, name)
    return np.zeros(0, dtype="<f4")


def _raw_values(proto: BlobProto, name: str) -> NDArray[Any]:
    facts = message_facts(proto).fields[f"raw_{name}_type"]
    assert facts.enum is not None
    type_name = facts.enum.names[getattr(proto, f"raw_{name}_type")]
    if type_name not in _RAW_TYPES:
        raise PrototxtError(f"a blob stores its '{name}' raw as {type_name}; only {', '.join(_RAW_TYPES)} are read")
    raw = getattr(proto, f"raw_{name}")
    dtype = np.dtype(_RAW_TYPES[type_name])
    if len(raw) % dtype.itemsize:
        raise PrototxtError(f"a blob stores {len(raw)} bytes of {type_name}, which is no whole number of values")
    values = np.frombuffer(raw, dtype=dtype)
    return values.astype("<f4") if type_name == "FLOAT16" else values


def _packed_bytes(proto: BlobProto, field: str) -> memoryview:
    """Find the bytes of a packed field in the wire format of its message."""
    number = message_facts(proto).fields[field].number
    data = memoryview(proto.SerializeToString())
    position = 0
    while True:
        tag, position = _read_varint(data, position)
        size = {1: 8, 5: 4}.get(tag & 7, 0)
        if tag & 7 == 0:
            _, position = _read_varint(data, position)
        elif tag & 7 == 2:
            size, position = _read_varint(data, position)
            if tag >> 3 == number:
                return data[position : position + size]
        position += size


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _read_varint(data: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7


def _shown(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "()"
