"""Writes a graph as an ONNX file, array by array, without a second copy of the weights in memory.

An ONNX file is a ModelProto. protobuf would build the whole message and then its bytes; here the small parts are
serialized by protobuf and the arrays are written from where they lie, with the lengths around them counted in advance.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
from onnx import helper

from mgcaffe.errors import EXIT_CANNOT_WRITE, DataError, EngineError
from mgcaffe.prototxt.wire_format import field_head
from mgcaffe.tools.convert.onnx_out.graph import Graph, array_type

_MOST_BYTES = 2**31 - 1
# Numbers of the fields of ONNX's messages (onnx.proto).
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9


def write_model(graph: Graph, path: Path, *, note: str = "") -> None:
    """Write the file.

    Args:
        graph: the whole graph.
        path: where to; what is there is overwritten.
        note: what the model's description says.

    Raises:
        DataError: it would be larger than a protobuf message can be.
        EngineError: (exit code 73) it cannot be written.
    """
    heads = {name: _tensor_head(name, values) for name, values in graph.arrays.items()}
    small = _small_parts(graph)
    size = len(small) + sum(
        len(field_head(_GRAPH_INITIALIZER, len(head) + values.nbytes)) + len(head) + values.nbytes
        for head, values in _pairs(graph, heads)
    )
    if size > _MOST_BYTES:
        raise DataError(
            f"net '{graph.name}' would be an ONNX file of {size / 2**30:.2f} GiB, and one holds less than 2 GiB"
        )
    try:
        with path.open("wb") as file:
            file.write(_model_head(note, graph))
            file.write(field_head(_MODEL_GRAPH, size))
            file.write(small)
            for head, values in _pairs(graph, heads):
                file.write(field_head(_GRAPH_INITIALIZER, len(head) + values.nbytes))
                file.write(head)
                file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise EngineError(f"cannot write {path}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None


def _pairs(graph: Graph, heads: dict[str, bytes]) -> Iterator[tuple[bytes, np.ndarray]]:
    return ((heads[name], values) for name, values in graph.arrays.items())


def _model_head(note: str, graph: Graph) -> bytes:
    """Return everything of the ModelProto but its graph."""
    model = onnx.ModelProto(producer_name="mgcaffe", producer_version=version("mgcaffe"), doc_string=note)
    model.opset_import.append(helper.make_opsetid("", graph.opset))
    helper.set_model_props(model, graph.metadata)
    model.ir_version = helper.find_min_ir_version_for(list(model.opset_import))
    head: bytes = model.SerializeToString()
    return head


def _small_parts(graph: Graph) -> bytes:
    """Return everything of the GraphProto but its initializers."""
    message = onnx.GraphProto(
        name=graph.name or "net",
        node=graph.nodes,
        input=graph.inputs,
        output=graph.outputs,
        value_info=graph.values,
    )
    parts: bytes = message.SerializeToString()
    return parts


def _tensor_head(name: str, values: np.ndarray) -> bytes:
    """Return everything of a TensorProto up to the values themselves."""
    tensor = onnx.TensorProto(name=name, dims=values.shape, data_type=array_type(values))
    head: bytes = tensor.SerializeToString() + field_head(_TENSOR_RAW_DATA, values.nbytes)
    return head
