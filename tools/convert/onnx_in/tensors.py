"""Reads tensors of an ONNX file: types, lengths and places of their values are checked before anything is allocated."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from mgcaffe.errors import DataError

if TYPE_CHECKING:
    import onnx

# By the number of TensorProto.DataType: how values lie in raw data, and the field that holds them otherwise.
_TYPES: dict[int, tuple[str, str]] = {
    1: ("<f4", "float_data"),
    2: ("u1", "int32_data"),
    3: ("i1", "int32_data"),
    4: ("<u2", "int32_data"),
    5: ("<i2", "int32_data"),
    6: ("<i4", "int32_data"),
    7: ("<i8", "int64_data"),
    9: ("?", "int32_data"),
    10: ("<f2", "int32_data"),
    11: ("<f8", "double_data"),
    12: ("<u4", "uint64_data"),
    13: ("<u8", "uint64_data"),
    16: ("<u2", "int32_data"),
}
FLOATS = {1: "float32", 10: "float16", 11: "float64", 16: "bfloat16"}
"""The types of floating-point numbers that are read, by their number."""
WHOLE_NUMBERS = {6: "int32", 7: "int64"}
"""The types of whole numbers that rows of tables are looked up by."""
_HALF = 10
_BFLOAT16 = 16
MAX_AXES = 32
"""The most axes of a blob."""
MAX_VALUES = 2**31 - 1
"""The most values of a blob (Caffe counts them in an int)."""


def type_name(number: int) -> str:
    """Return what ONNX calls a type of values."""
    from onnx import TensorProto

    try:
        return str(TensorProto.DataType.Name(number)).lower()
    except ValueError:
        return f"type {number}"


def read_tensor(tensor: onnx.TensorProto, path: Path, what: str) -> torch.Tensor:
    """Return a tensor's values; bfloat16 as float32, whole numbers without sign as int64.

    Args:
        tensor: the message.
        path: the model's file, beside which external data lies.
        what: what to call it in messages.

    Raises:
        DataError: its type cannot be read, its dimensions are no sizes, or it does not hold as many values as they say.
    """
    if tensor.data_type not in _TYPES:
        raise DataError(f"{path}: {what} holds {type_name(tensor.data_type)}, which is not read")
    shape = tuple(int(size) for size in tensor.dims)
    count = math.prod(shape)
    if len(shape) > MAX_AXES:
        raise DataError(f"{path}: {what} has {len(shape)} axes, and a blob has at most {MAX_AXES}")
    if any(size < 0 for size in shape) or count > MAX_VALUES:
        raise DataError(f"{path}: {what} has shape {shape}, which no blob can have")
    if tensor.HasField("segment"):
        raise DataError(f"{path}: {what} lies in segments, which are not read")
    kind, field = _TYPES[tensor.data_type]
    dtype = np.dtype(kind)
    if tensor.data_location == tensor.EXTERNAL:
        values = _external(tensor, path, what, count, dtype)
    elif tensor.HasField("raw_data"):
        data = tensor.raw_data
        _check_length(len(data), count * dtype.itemsize, path, what)
        values = np.frombuffer(bytearray(data), dtype)
    else:
        given = getattr(tensor, field)
        _check_length(len(given), count, path, what, "values")
        values = _typed(np.array(given, dtype=None if given else dtype), tensor.data_type, dtype, path, what)
    return _as_torch(values.reshape(shape), tensor.data_type)


def _check_length(found: int, wanted: int, path: Path, what: str, unit: str = "bytes") -> None:
    if found != wanted:
        raise DataError(f"{path}: {what} has {found} {unit} of data, and its shape needs {wanted}")


def _typed(values: np.ndarray, data_type: int, dtype: np.dtype, path: Path, what: str) -> np.ndarray:
    """Return values of a repeated field as what they stand for; those of 16 bits are there as bits."""
    if data_type in (_HALF, _BFLOAT16):
        return values.astype(np.int64).astype("<u2").view(dtype)
    if dtype.kind in "iu" and values.size:
        limits = np.iinfo(dtype)
        if int(values.min()) < limits.min or int(values.max()) > limits.max:
            raise DataError(f"{path}: {what} has values beyond {type_name(data_type)}")
    return values.astype(dtype)


def _external(tensor: onnx.TensorProto, path: Path, what: str, count: int, dtype: np.dtype) -> np.ndarray:
    """Return values that lie in another file of the model's folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    file = _beside(path, entries.get("location", ""), what)
    try:
        offset, wanted = int(entries.get("offset", "0")), count * dtype.itemsize
        length = int(entries.get("length", str(wanted)))
    except ValueError:
        raise DataError(f"{path}: {what} has no whole numbers as offset and length of its external data") from None
    _check_length(length, wanted, path, what)
    try:
        size = file.stat().st_size
        if offset < 0 or offset + wanted > size:
            raise DataError(f"{path}: {what} lies at bytes {offset} to {offset + wanted} of {file}, which has {size}")
        return np.fromfile(file, dtype, count, offset=offset)
    except OSError as error:
        raise DataError(f"cannot read {file}: {error.strerror}; {what} of {path} lies there") from None


def _beside(path: Path, location: str, what: str) -> Path:
    """Return a file of the model's folder or one below; others are refused, also through symbolic links."""
    folder = path.resolve().parent
    wrong = not location or "\0" in location or Path(location).is_absolute()
    file = folder if wrong else (folder / location).resolve()
    if wrong or not file.is_relative_to(folder) or file == folder:
        raise DataError(
            f"{path}: {what} has its values in '{location}', which is outside of the model's folder",
            hint="external data is read from the folder of the model alone",
        )
    return file


def _as_torch(values: np.ndarray, data_type: int) -> torch.Tensor:
    if data_type == _BFLOAT16:
        return torch.from_numpy(np.asarray(values.astype(np.uint32) << 16).view(np.float32))
    if values.dtype.kind == "u" and values.dtype.itemsize > 1:
        return torch.from_numpy(values.astype(np.int64))
    return torch.from_numpy(values)
