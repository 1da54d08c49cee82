"""The net that an ONNX file of ours was made from: its prototxt in the file's metadata, its weights in the graph.

Several layer types (LSTM, MVN, the losses) are written as many operators each, which nothing could read as these layers
again. So a file has beside its graph the net as text, and a digest of the graph's structure: the nodes, the ends, and
every array but the weights. A file that another program has read and written is still ours by it, also with other
weights, which are read from the graph; one whose graph was edited is not, and its operators are what counts.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import torch

from mgcaffe.engine.net import Net
from mgcaffe.errors import DataError
from mgcaffe.prototxt import NetParameter, NetSource, print_text
from mgcaffe.prototxt.files import parse_net
from mgcaffe.tools.convert.model import Model
from mgcaffe.tools.convert.onnx_in.graph import parse_model
from mgcaffe.tools.convert.onnx_in.tensors import read_tensor
from mgcaffe.tools.convert.onnx_out.graph import Graph, array_type

NET, STRUCTURE = "mgcaffe.net", "mgcaffe.structure"
"""What the two entries of the metadata are called."""

_WEIGHT = re.compile(r".*/(0|[1-9][0-9]*)", re.DOTALL)


def own_metadata(graph: Graph, net: Net) -> dict[str, str]:
    """Return what a file of this graph says of its net.

    Nothing, where the names of arrays do not say which blobs they are: of layers that have one name, or where a blob
    has the name of an array.
    """
    layers = [layer for layer in net.layers if layer.parameters]
    wished = [f"{layer.name}/{number}" for layer in layers for number in range(len(layer.parameters))]
    renamed = {name.rpartition("#")[0] for name in graph.arrays}
    if len(set(wished)) < len(wished) or any(name in renamed and name not in graph.arrays for name in wished):
        return {}
    text = _net_text(net.param)
    arrays = [(name, array_type(each), each.shape, each.tobytes) for name, each in graph.arrays.items()]
    digest = _digest(text, [("", graph.opset)], graph.nodes, [graph.inputs, graph.outputs], arrays)
    return {NET: text, STRUCTURE: digest}


def has_own_net(model: onnx.ModelProto) -> bool:
    """Return whether a file says which net it was made from."""
    return {NET, STRUCTURE} <= _metadata(model).keys()


def _metadata(model: onnx.ModelProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in model.metadata_props}


def own_model(model: onnx.ModelProto, file: Path) -> OwnModel | None:
    """Return the net that a file was made from, with the weights that are in it now.

    Args:
        model: the file's content, its texts checked.
        file: where it is, for messages and for arrays that are not inside.

    Returns:
        None where the file has no net of ours, or its graph is no longer the one that was made of it.

    Raises:
        PrototxtError, DataError: the net cannot be read, or an array is damaged.
    """
    graph = model.graph
    said = _metadata(model)
    if not {NET, STRUCTURE} <= said.keys() or model.functions or graph.sparse_initializer:
        return None
    arrays = [(each.name, each.data_type, each.dims, partial(_content, each, file)) for each in graph.initializer]
    opsets = [(entry.domain, entry.version) for entry in model.opset_import]
    if said[STRUCTURE] != _digest(said[NET], opsets, graph.node, [graph.input, graph.output], arrays):
        return None
    source = parse_net(said[NET], file=f"{file}:{NET}")
    values = [*(each.name for each in graph.input), *(name for node in graph.node for name in node.output)]
    return OwnModel(source, model, {name: name for name in values}, file)


class OwnModel(Model):
    """A net whose weights are arrays of an ONNX file; see `Model`.

    Args:
        source: the net.
        message: the file's content, which is kept until the net is built.
        names: see `Model`.
        file: the file.
    """

    def __init__(self, source: NetSource, message: onnx.ModelProto, names: Mapping[str, str], file: Path) -> None:
        super().__init__(source, None, names)
        self._message: onnx.ModelProto | None = message
        self._file = file

    def build(self, *, dtype: torch.dtype = torch.float32, stages: Sequence[str] = (), seed: int | None = None) -> Net:
        """Return the net in its TEST phase, with the file's weights in the shapes that the layers have for them.

        BatchNorm's statistics are in the file divided by their third blob, which becomes 1.
        """
        net = super().build(dtype=dtype, stages=stages, seed=seed)
        message = self._message or parse_model(self._file)
        self._message = None
        tensors = {tensor.name: tensor for tensor in message.graph.initializer}
        skipped = []
        for layer in net.layers:
            for number, parameter in enumerate(layer.parameters):
                name = f"{layer.name}/{number}"
                if name in tensors:
                    self._copy(tensors[name], parameter.data)
                elif layer.type == "BatchNorm" and number == 2 and f"{layer.name}/0" in tensors:
                    parameter.data.fill_(1)
                elif parameter.owner is None:
                    skipped.append(f"layer '{layer.name}': blob {number} is not in the file; keeps its values")
        self.skipped = skipped
        return net

    def _copy(self, tensor: onnx.TensorProto, target: torch.Tensor) -> None:
        values = read_tensor(tensor, self._file, f"array '{tensor.name}'")
        if values.numel() != target.numel():
            raise DataError(
                f"{self._file}: array '{tensor.name}' has shape {tuple(values.shape)}, and the blob of its layer"
                f" {tuple(target.shape)}"
            )
        target.copy_(values.reshape(target.shape))


def _net_text(param: NetParameter) -> str:
    """Return a net as text, without weights."""
    structure = NetParameter()
    structure.CopyFrom(param)
    for layer in structure.layer:
        del layer.blobs[:]
    return print_text(structure)


def _content(tensor: onnx.TensorProto, file: Path) -> bytes:
    return read_tensor(tensor, file, f"array '{tensor.name}'").numpy().tobytes()


_Array = tuple[str, int, Sequence[int], Callable[[], bytes]]


def _digest(
    text: str,
    opsets: Sequence[tuple[str, int]],
    nodes: Iterable[onnx.NodeProto],
    ends: Sequence[Iterable[onnx.ValueInfoProto]],
    arrays: Iterable[_Array],
) -> str:
    """Return a hash of the net, and of the whole graph but the values of weights.

    Args:
        text: the net.
        opsets: the versions of the operators, by domain.
        nodes: in order.
        ends: the graph's inputs, and its outputs.
        arrays: name, ONNX's type, shape and values of each.
    """
    sums = hashlib.sha256()

    def add(*parts: Any) -> None:
        for part in parts:
            content = part if isinstance(part, bytes) else str(part).encode()
            sums.update(len(content).to_bytes(8, "little") + content)

    add(text, sorted(opsets))
    for node in nodes:
        add("node", node.domain, node.op_type, node.name, list(node.input), list(node.output))
        for attribute in sorted(node.attribute, key=lambda each: each.name):
            add(attribute.SerializeToString(deterministic=True))
    for values in ends:
        add("ends")
        for value in values:
            add(value.name, value.type.SerializeToString(deterministic=True))
    for name, kind, shape, values_of in sorted(arrays, key=lambda each: each[0]):
        add("array", name, kind, list(shape))
        if not _WEIGHT.fullmatch(name):
            add(values_of())
    return sums.hexdigest()
