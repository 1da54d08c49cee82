"""Goes through a net layer by layer and makes a module of PyTorch of it."""

from __future__ import annotations

import re
from collections.abc import Collection

from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.net import Net
from mgcaffe.errors import NetError
from mgcaffe.tools.convert.caffe_side import value_names
from mgcaffe.tools.convert.layer_writer import INPUT, WITHOUT, refuse_as_data
from mgcaffe.tools.convert.torch_out.emitter import Emitter, Together
from mgcaffe.tools.convert.torch_out.helpers import HELPERS
from mgcaffe.tools.convert.torch_out.module import Array, Module, Statement, Value
from mgcaffe.tools.convert.torch_out.names import class_name, identifier, variable_names
from mgcaffe.tools.convert.torch_out.operators import OPERATORS
from mgcaffe.tools.convert.training_step import places_of


def export_net(net: Net, *, allow: Collection[str] = (), stateless: bool = False) -> Module:
    """Return a net as a module.

    Args:
        net: in its TEST phase, with its weights. They are not copied: they may not change before the file is written.
        allow: names of ALLOWANCES.
        stateless: the module may keep nothing from one call to the next.

    Raises:
        NetError: a layer or field that PyTorch cannot express, with its place.
    """
    return _Export(net, allow, stateless).module


class _Export:
    """One pass through a net.

    Attributes:
        module: what it is written to.
    """

    def __init__(self, net: Net, allow: Collection[str], stateless: bool) -> None:
        self.module = Module(class_name(net.name, HELPERS))
        self._net = net
        self._allow, self._stateless = allow, stateless
        self._variables = variable_names(HELPERS)
        self._by_blob: dict[str, str] = {}  # the variable of each blob, by its name
        self._values: dict[int, str] = {}  # the variable that holds each blob, by the blob's identity
        self._placed: dict[int, Array] = {}
        self._gradient_places = places_of(net.layers)
        self._names = value_names(net)
        self._fused: set[int] = set()
        read = {id(blob) for node in net.nodes for blob in node.bottoms if blob not in node.tops}
        for node, names in zip(net.nodes, self._names, strict=True):
            if node.layer.type == INPUT:
                self._add_inputs(node)
            elif node.index in self._fused:
                continue
            elif node.layer.type == "Split" and self._is_alias(node, read):
                self._values.update((id(blob), self._values[id(node.bottoms[0])]) for blob in node.tops)
            else:
                self._add_layer(node, names)
        self._add_outputs(read)

    def _is_alias(self, node: Node, read: Collection[int]) -> bool:
        """Return whether the tops of a Split need no variables of their own: its bottom is not written over later."""
        bottom = node.bottoms[0]
        later = self._net.nodes[node.index + 1 :]
        return all(id(blob) in read for blob in node.tops) and not any(bottom in other.tops for other in later)

    def _add_inputs(self, node: Node) -> None:
        for blob in node.tops:
            if not node.layer.param.input_param.shape:
                node.layer.fail(
                    f"the shape of blob '{blob.name}' is not given", hint=f"--input_shape={blob.name}=N,C,H,W gives it"
                )
            self._values[id(blob)] = variable = self._variable(blob.name)
            self.module.inputs.append(Value(variable, blob.name, tuple(blob.shape)))

    def _variable(self, blob: str) -> str:
        if blob not in self._by_blob:
            self._by_blob[blob] = self._variables.new(blob)
        return self._by_blob[blob]

    def _add_layer(self, node: Node, names: list[str]) -> None:
        layer = node.layer
        refuse_as_data(layer, self._net.nodes, "PyTorch")
        if layer.type not in OPERATORS:
            layer.fail(f"PyTorch has nothing like {layer.type}: {WITHOUT.get(layer.type, 'it is not in the table')}")
        bottoms = [self._values[id(blob)] for blob in node.bottoms]
        emitter = Emitter(
            self.module,
            node,
            bottoms,
            self._placed,
            self._gradient_places,
            self._allow,
            stateless=self._stateless,
            follower=self._next(node),
        )
        written = OPERATORS[layer.type].write(emitter, layer)
        comment = layer.name
        says = identifier(layer.name)
        if emitter.took_follower:
            follower = self._net.nodes[node.index + 1]
            self._fused.add(follower.index)
            names, comment = self._names[follower.index], f"and {follower.layer.name}"
        targets = [self._variable(blob.name) for blob in node.tops]
        groups = [written.text] if isinstance(written, Together) else written
        size = len(targets) if isinstance(written, Together) else 1
        for number, text in enumerate(groups):
            part = slice(number * size, number * size + size)
            # A reader sees which layer it is, unless nothing on the line is called like it.
            is_said = says in targets[part] or re.search(rf"\bself\.{re.escape(says)}\b", text)
            shown = "" if is_said and not emitter.took_follower else comment
            sizes = tuple(emitter.top_shapes[part])
            self.module.statements.append(Statement(tuple(targets[part]), text, tuple(names[part]), sizes, shown))
        self._values.update((id(blob), target) for blob, target in zip(node.tops, targets, strict=True))

    def _next(self, node: Node) -> Node | None:
        """Return the layer that follows at once and works in place on this one's only top."""
        found = self._net.nodes[node.index + 1 : node.index + 2]
        is_next = found and len(node.tops) == 1 and found[0].tops == node.tops == found[0].bottoms
        return found[0] if is_next else None

    def _add_outputs(self, read: Collection[int]) -> None:
        made = {id(blob): blob for node in self._net.nodes if node.layer.type != INPUT for blob in node.tops}
        for blob in made.values():
            if id(blob) not in read:
                self.module.outputs.append(Value(self._values[id(blob)], blob.name, tuple(blob.shape)))
        if not self.module.outputs:
            raise NetError(
                f"net '{self._net.name}' has no output: nothing in it makes a blob that no other layer reads"
            )
