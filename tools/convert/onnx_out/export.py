"""Goes through a net layer by layer and makes an ONNX graph of it."""

from __future__ import annotations

from collections.abc import Collection

from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.net import Net
from mgcaffe.engine.types import Shape
from mgcaffe.errors import NetError
from mgcaffe.tools.convert.caffe_side import value_names
from mgcaffe.tools.convert.layer_writer import INPUT, WITHOUT, refuse_as_data
from mgcaffe.tools.convert.onnx_out.emitter import Emitter
from mgcaffe.tools.convert.onnx_out.graph import Graph, value_info
from mgcaffe.tools.convert.onnx_out.operators import OPERATORS
from mgcaffe.tools.convert.onnx_own import own_metadata


def export_net(net: Net, *, allow: Collection[str] = ()) -> Graph:
    """Return a net as an ONNX graph; its values are called as `value_names` says, its weights layer/number.

    The metadata has the net itself as well (onnx_own.py).

    Args:
        net: in its TEST phase, with its weights. They are not copied: they may not change before the file is written.
        allow: names of ALLOWANCES.

    Raises:
        NetError: a layer or field that ONNX cannot express, with its place.
    """
    graph = _Export(net, allow).graph
    graph.metadata = own_metadata(graph, net)
    return graph


class _Export:
    """One pass through a net.

    Attributes:
        graph: what it is written to.
    """

    def __init__(self, net: Net, allow: Collection[str]) -> None:
        self.graph = Graph(net.name)
        self._allow = allow
        self._nodes = net.nodes
        self._values: dict[int, str] = {}  # of each blob, by identity: the value in it by now
        self._weights: dict[tuple[int, Shape], str] = {}
        self._varying: set[str] = set()
        names = value_names(net)
        self.graph.reserve([name for row in names for name in row])
        read = {id(blob) for node in net.nodes for blob in node.bottoms if blob not in node.tops}
        last = {
            id(blob): top
            for node, tops in zip(net.nodes, names, strict=True)
            for blob, top in zip(node.tops, tops, strict=True)
        }
        for node, tops in zip(net.nodes, names, strict=True):
            if node.layer.type == INPUT:
                self._add_inputs(node, tops)
            elif node.layer.type == "Split" and all(id(blob) in read for blob in node.tops):
                self._values.update((id(blob), self._values[id(node.bottoms[0])]) for blob in node.tops)
            else:
                ends = [
                    id(blob) not in read and last[id(blob)] == top for blob, top in zip(node.tops, tops, strict=True)
                ]
                self._add_layer(node, tops, ends)
        if not self.graph.outputs:
            raise NetError(f"net '{net.name}' has no output: nothing in it makes a blob that no other layer reads")

    def _add_inputs(self, node: Node, tops: list[str]) -> None:
        for blob, top in zip(node.tops, tops, strict=True):
            if not node.layer.param.input_param.shape:
                node.layer.fail(
                    f"the shape of blob '{blob.name}' is not given", hint=f"--input_shape={blob.name}=N,C,H,W gives it"
                )
            self._values[id(blob)] = top
            self.graph.inputs.append(value_info(top, blob.shape))

    def _add_layer(self, node: Node, tops: list[str], ends: list[bool]) -> None:
        layer = node.layer
        refuse_as_data(layer, self._nodes, "ONNX")
        if layer.type not in OPERATORS:
            layer.fail(f"ONNX has nothing like {layer.type}: {WITHOUT.get(layer.type, 'it is not in the table')}")
        entry = OPERATORS[layer.type]
        bottoms = [self._values[id(blob)] for blob in node.bottoms]
        varies = any(bottom in self._varying for bottom in bottoms)
        emitter = Emitter(self.graph, node, bottoms, self._weights, self._allow, varies=varies)
        if varies and not entry.any_batch:
            emitter.refuse_varying()
        emitter.finish(entry.write(emitter, layer), tops)
        if varies or layer.type == "Filter":
            self._varying.update(top for blob, top in zip(node.tops, tops, strict=True) if blob.shape)
        for blob, top, end in zip(node.tops, tops, ends, strict=True):
            self._values[id(blob)] = top
            shape: list[int | str] = [*blob.shape]
            if top in self._varying:
                shape[0] = "items"
            (self.graph.outputs if end else self.graph.values).append(value_info(top, shape))
