"""One node, as the functions of the operator tables see it: inputs, attributes, refusals, layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from mgcaffe.errors import Location, NetError
from mgcaffe.tools.convert.importing import operation as importing
from mgcaffe.tools.convert.importing.layers_made import LayersMade
from mgcaffe.tools.convert.importing.values import Constant, Padded, Shape, Value
from mgcaffe.tools.convert.onnx_in.graph import Graph, Node
from mgcaffe.tools.convert.onnx_in.tensors import MAX_VALUES

LARGEST = 2**31 - 1
"""The largest whole number that a field of a layer holds."""

_LONGEST = 400
"""How much an error says of what a node has."""

Known = Value | Constant


def shape_of(value: Known) -> Shape:
    """Return the shape of a value, with the zeros around it."""
    if isinstance(value, Constant):
        return tuple(value.tensor.shape)
    return value.whole_shape if isinstance(value, Padded) else value.shape


def refuse(graph: Graph, node: Node, message: str, hint: str | None = None) -> NoReturn:
    """Raise the error that names the file and a node.

    Raises:
        NetError: always.
    """
    if len(message) > _LONGEST:  # of a damaged attribute with thousands of values
        message = f"{message[:_LONGEST]} ..."
    raise NetError(f"{message} ({node})", location=Location(str(graph.path)), hint=hint)


class Operation(importing.Operation):
    """One node.

    Args:
        graph: that it is in.
        node: the node.
        inputs: what its inputs have become; None where one is left out.
        name: what to call its layers.
        made: takes the layers.

    Attributes:
        shape: of the node's first value; that of its first input until an operator's function says another.
        absorbed: nodes behind this one that its layers compute as well; the result is that of the last of them.
        lookup: gives what a value of the graph has become, if it is known.
    """

    def __init__(self, graph: Graph, node: Node, inputs: Sequence[Known | None], name: str, made: LayersMade) -> None:
        first = inputs[0] if inputs else None
        super().__init__(made, first.shape if isinstance(first, Value) else ())
        self.graph = graph
        self.node = node
        self.opset = graph.opset
        self.inputs = list(inputs)
        self.name = name
        self.absorbed: list[Node] = []
        self.lookup: Callable[[str], Known | None] = lambda name: None

    def refuse(self, message: str, hint: str | None = None) -> NoReturn:
        """Raise the error that names file, operator, node and values."""
        refuse(self.graph, self.node, message, hint)

    def layer_name(self, part: str) -> str:
        """Return the node's name, and the part."""
        return f"{self.name}.{part}" if part else self.name

    def layers(
        self,
        kind: str,
        bottoms: Sequence[Value],
        shapes: Sequence[Shape],
        *,
        part: str = "",
        blobs: Sequence[Constant] = (),
        **fields: Any,
    ) -> list[Value]:
        """Add a layer, once it is sure that its tops can exist."""
        for shape in shapes:
            self.check_shape(shape)
        return super().layers(kind, bottoms, shapes, part=part, blobs=blobs, **fields)

    def check_shape(self, shape: Shape) -> None:
        """Refuse a shape that no blob can have."""
        if any(size < 1 for size in shape) or math.prod(shape) > MAX_VALUES:
            self.refuse(f"its result has shape {tuple(shape)}, which no blob can have")

    def input(self, number: int) -> Known | None:
        """Return an input; None where it is left out."""
        return self.inputs[number] if number < len(self.inputs) else None

    def blob(self, number: int = 0, *, padded: bool = False) -> Value:
        """Return an input that has to be a blob; zeros around it only if `padded`."""
        found = self.input(number)
        if found is None:
            self.refuse(f"its input {number} is missing")
        return self.as_blob(found, padded=padded)

    def constant(self, number: int, what: str) -> Constant | None:
        """Return an input that has to be a weight or constant, or None where it is left out."""
        found = self.input(number)
        if isinstance(found, Value):
            self.refuse(f"its {what} is computed in the net; layers have theirs as parameters")
        return found

    def weight(self, number: int, what: str, shape: Shape | None = None) -> Constant:
        """Return an input that has to be a weight of floating-point numbers, and of that shape if one is given.

        It is trained, also where the file has it as a constant.
        """
        found = self.constant(number, what)
        if found is None:
            self.refuse(f"its {what} is missing")
        if not found.tensor.is_floating_point():
            self.refuse(
                f"its {what} holds {str(found.tensor.dtype).removeprefix('torch.')}; layers compute with floats"
            )
        if shape is not None and tuple(found.tensor.shape) != tuple(shape):
            self.refuse(f"its {what} has shape {tuple(found.tensor.shape)}, not {tuple(shape)}")
        return Constant(found.tensor, found.name, trained=True)

    def numbers(self, number: int, what: str) -> list[int] | None:
        """Return an input that has to be constant whole numbers, or None where it is left out."""
        found = self.constant(number, what)
        if found is None:
            return None
        if found.tensor.is_floating_point() or found.tensor.dtype == torch.bool or found.tensor.dim() > 1:
            self.refuse(f"its {what} is no list of whole numbers")
        return [int(each) for each in found.tensor.reshape(-1)]

    def number(self, number: int, what: str) -> float | None:
        """Return an input that has to be one constant number, or None where it is left out."""
        found = self.constant(number, what)
        if found is None:
            return None
        if found.tensor.numel() != 1:
            self.refuse(f"its {what} has {found.tensor.numel()} values, not one")
        return float(found.tensor.reshape(()))

    def _attribute(self, name: str, kinds: type | tuple[type, ...], what: str) -> Any:
        value = self.node.attributes.get(name)
        if name in self.node.attributes and not isinstance(value, kinds):
            self.refuse(f"its attribute '{name}' is no {what}")
        return value

    def integer(self, name: str, default: int) -> int:
        """Return an attribute that is a whole number."""
        value = self._attribute(name, int, "whole number")
        return default if value is None else int(value)

    def real(self, name: str, default: float) -> float:
        """Return an attribute that is a number."""
        value = self._attribute(name, float, "number")
        return default if value is None else float(value)

    def word(self, name: str, default: str) -> str:
        """Return an attribute that is a word."""
        value = self._attribute(name, bytes, "word")
        return default if value is None else value.decode("utf-8", "replace")

    def integers(self, name: str) -> list[int] | None:
        """Return an attribute that is a list of whole numbers; None where there is none."""
        value = self._attribute(name, list, "list of whole numbers")
        if value is not None and not all(isinstance(each, int) for each in value):
            self.refuse(f"its attribute '{name}' is no list of whole numbers")
        return value or None

    def sizes(self, name: str, count: int, default: int | None, *, least: int = 1) -> list[int]:
        """Return a list of sizes, one an axis.

        Args:
            name: the attribute.
            count: how many.
            default: of each; None: there has to be such an attribute.
            least: the smallest that is allowed.
        """
        value = self.integers(name)
        if value is None:
            if default is None:
                self.refuse(f"it has no attribute '{name}'")
            return [default] * count
        if len(value) != count or not all(least <= size <= LARGEST for size in value):
            self.refuse(f"its attribute '{name}' is {value}, not {count} sizes of {least} or more")
        return value

    def axis(self, axis: int, rank: int) -> int:
        """Return an axis counted from the front."""
        if not -rank <= axis < rank:
            self.refuse(f"it names axis {axis} of {rank}")
        return axis % rank

    def axes(self, given: Sequence[int], rank: int) -> list[int]:
        """Return different axes counted from the front."""
        axes = [self.axis(axis, rank) for axis in given]
        if len(set(axes)) != len(axes):
            self.refuse(f"it names an axis twice: {list(given)}")
        return axes

    def listed(self, name: str, number: int, since: int) -> list[int] | None:
        """Return whole numbers that were an attribute before a version, and an input since."""
        return self.numbers(number, name) if self.opset >= since else self.integers(name)

    def only_reader(self) -> Node | None:
        """Return the one node that reads what this one, or the last one absorbed, makes; None if it is an output."""
        name = (self.absorbed[-1] if self.absorbed else self.node).outputs[0]
        readers = self.graph.readers.get(name, ())
        return readers[0] if len(readers) == 1 and name not in self.graph.outputs else None

    def broadcast(self, *shapes: Shape) -> Shape:
        """Return the shape that values of these shapes have together."""
        try:
            return tuple(np.broadcast_shapes(*shapes))  # PyTorch's own loads sympy for it, which takes a second
        except ValueError:
            return self.refuse(f"shapes {' and '.join(map(str, shapes))} do not fit together")


Result = Known | Sequence[Known | None]
Table = Mapping[str, Callable[[Operation], Result]]
"""By an operator's name the function that makes layers of one."""
