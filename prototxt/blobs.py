"""Moves arrays into and out of BlobProto messages, fast enough for the weights of any net.

protobuf's own repeated fields take a Python float at a time: 17 s for the 61 million of AlexNet. The bytes of
a packed field are those of the array, so they are handed over as a whole, through the wire format.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from mgcaffe.errors import PrototxtError
from mgcaffe.prototxt.messages import (
    BlobProto,
    BlobShape,
    LayerParameter,
    NetParameter,
    SolverParameter,
    has_field,
    message_facts,
)
from mgcaffe.prototxt.wire_format import field_head, fields_of, reader_of

MAX_AXES = 32
_INLINE_NETS = ("net_param", "train_net_param")
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
    check_count(shape, values.size, name)
    return values.reshape(shape)


def check_count(shape: tuple[int, ...], found: int, name: str = "data") -> None:
    """Make sure that a blob holds as many values as its shape says.

    Raises:
        PrototxtError: it holds more or fewer.
    """
    count = math.prod(shape)
    if count != found:
        raise PrototxtError(f"a blob of shape {_shown(shape)} holds {found} values in '{name}' instead of {count}")


def blob_pieces(array: NDArray[Any], diff: NDArray[Any] | None = None) -> list[bytes | memoryview]:
    """Return the binary form of a BlobProto in pieces, of which the values are the arrays' own memory.

    Their bytes are those that `SerializeToString` gives of a blob filled by `fill_blob`.

    Args:
        array, diff: values and, where they are stored as well, their gradients; types as for `fill_blob`.

    Raises:
        PrototxtError: as for `fill_blob`.
    """
    fields: list[tuple[int, bytes | memoryview]] = [
        _packed(values, name) for values, name in ((array, "data"), (diff, "diff")) if values is not None
    ]
    facts = message_facts(BlobProto()).fields
    fields.append((facts["shape"].number, BlobShape(dim=array.shape).SerializeToString()))
    found: list[bytes | memoryview] = []
    for number, content in sorted(fields, key=lambda field: field[0]):
        if len(content) or number == facts["shape"].number:
            found += [field_head(number, len(content)), content]
    return found


def fill_blob(proto: BlobProto, array: NDArray[Any], *, diff: bool = False) -> None:
    """Put an array into a blob, with its shape. What else the blob holds stays.

    Args:
        proto: the BlobProto.
        array: float64 is stored as doubles, everything else as float32.
        diff: stores it as the gradient beside the values.

    Raises:
        PrototxtError: the array is larger than protobuf's 2 GiB, or has more than 32 axes.
    """
    name = "diff" if diff else "data"
    number, content = _packed(array, name)
    for stale in (name, f"double_{name}", *_LEGACY_AXES):
        proto.ClearField(stale)
    proto.shape.CopyFrom(BlobShape(dim=array.shape))
    proto.MergeFromString(b"".join((field_head(number, len(content)), content)))


def without_blobs(layer: LayerParameter) -> LayerParameter:
    """Return a copy of a layer's message without its weights, which are not copied even for a moment."""
    copy = LayerParameter()
    _copy_fields(layer, copy, but=("blobs",))
    return copy


def net_without_blobs(net: NetParameter) -> NetParameter:
    """Return a copy of a net's message without the weights of its `layer`s, as `without_blobs` does."""
    copy = NetParameter()
    _copy_fields(net, copy, but=("layer",))
    copy.layer.extend(without_blobs(layer) for layer in net.layer)
    return copy


def inline_nets(solver: SolverParameter) -> list[NetParameter]:
    """Return the nets that stand in a solver's message."""
    single = [getattr(solver, name) for name in _INLINE_NETS if has_field(solver, name)]
    return [*single, *solver.test_net_param]


def solver_without_blobs(solver: SolverParameter) -> SolverParameter:
    """Return a copy of a solver's message without the weights of the nets in it, as `net_without_blobs` does."""
    copy = SolverParameter()
    _copy_fields(solver, copy, but=(*_INLINE_NETS, "test_net_param"))
    for name in _INLINE_NETS:
        if has_field(solver, name):
            getattr(copy, name).CopyFrom(net_without_blobs(getattr(solver, name)))
    copy.test_net_param.extend(map(net_without_blobs, solver.test_net_param))
    return copy


def _copy_fields(message: Message, copy: Message, but: Collection[str]) -> None:
    """Set the fields of a message in another one of its type, but for some of them."""
    facts = message_facts(message).fields
    for descriptor, value in message.ListFields():
        field = facts[descriptor.name]
        if field.name in but:
            continue
        if field.repeated:
            getattr(copy, field.name).extend(value)
        elif field.kind == "message":
            getattr(copy, field.name).CopyFrom(value)
        else:
            setattr(copy, field.name, value)


def _packed(array: NDArray[Any], name: str) -> tuple[int, memoryview]:
    """Return the number of the field that holds an array, and its bytes."""
    is_double = array.dtype == np.float64
    flat = np.ascontiguousarray(array, dtype="<f8" if is_double else "<f4").reshape(-1)
    if flat.nbytes > _MAX_BYTES or array.ndim > MAX_AXES:
        raise PrototxtError(f"an array of shape {_shown(array.shape)} does not fit into a blob of at most 2 GiB")
    number = message_facts(BlobProto()).fields[f"double_{name}" if is_double else name].number
    return number, flat.view(np.uint8).data


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
    place = next(each for each in fields_of(reader_of(data), 0, len(data)) if each.number == number)
    return data[place.content : place.end]


def _shown(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "()"
