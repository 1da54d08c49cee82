"""Reads ONNX models and leaves their weights in the file, to which they then point as external data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mgcaffe.errors import DataError, UsageError
from mgcaffe.prototxt.wire_format import NotWalkable, Payload, Tree, without_payloads

if TYPE_CHECKING:
    import onnx

# ModelProto.graph.initializer, and the fields of a TensorProto that may hold its values.
_VALUES = dict.fromkeys((4, 5, 6, 7, 9, 10, 11), "values")
_TREE: Tree = {7: {5: _VALUES}}
_RAW_DATA = 9


def read_model(path: Path) -> onnx.ModelProto:
    """Return a model whose large arrays of floating-point numbers are external data: parts of the file itself.

    Raises:
        DataError: the file cannot be read, or is no ONNX model.
    """
    import onnx

    try:
        try:
            return _without_weights(path)
        except NotWalkable:
            return onnx.load(str(path), load_external_data=False)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    except Exception as error:  # protobuf's DecodeError, and what onnx's own checks raise
        raise DataError(f"{path} is no ONNX model: {first_line(error)}") from None


def _without_weights(path: Path) -> onnx.ModelProto:
    import onnx

    floats = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)
    with path.open("rb") as file:

        def read(start: int, count: int) -> bytes:
            file.seek(start)
            return file.read(count)

        head, found = without_payloads(read, path.stat().st_size, _TREE)
        model = onnx.ModelProto.FromString(head)
        if len(found) != len(model.graph.initializer):
            raise NotWalkable
        for tensor, payloads in zip(model.graph.initializer, found, strict=True):
            payload = payloads.get("values")
            if payload is None:
                continue
            if payload.number != _RAW_DATA:
                raise NotWalkable
            if tensor.data_type in floats:
                _point_at(tensor, path, payload)
            else:  # onnxruntime looks at whole numbers before it runs: they can be shapes
                tensor.raw_data = read(payload.offset, payload.length)
        return model


def _point_at(tensor: onnx.TensorProto, path: Path, payload: Payload) -> None:
    tensor.data_location = tensor.EXTERNAL
    del tensor.external_data[:]
    # The folder is that of the file itself, also where `path` is a symbolic link to it.
    place = (("location", path.resolve().name), ("offset", payload.offset), ("length", payload.length))
    for key, value in place:
        tensor.external_data.add(key=key, value=str(value))


def open_shape(path: Path, name: str, sizes: Sequence[int | str | None]) -> UsageError:
    """Return the error that says that an input has an open shape, and what to give.

    Args:
        path: the file.
        name: the input.
        sizes: its shape; a word or None stands for a size that is open.
    """
    shown = ", ".join("?" if size is None else str(size) for size in sizes)
    return UsageError(
        f"{path}: input '{name}' has the open shape ({shown})", hint=f"give it: --input_shape {name}=1,3,224,224"
    )


def first_line(error: Exception) -> str:
    """Return what an exception says, without the trace of calls that onnxruntime adds."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
