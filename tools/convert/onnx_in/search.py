"""Walks a graph backwards from the last node of what may be one layer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from mgcaffe.tools.convert.importing.values import Constant, Value
from mgcaffe.tools.convert.onnx_in.graph import Graph, Node
from mgcaffe.tools.convert.onnx_in.operation import Operation

Make = Callable[[Operation, Value], Value]
_CLOSE = 1e-6
"""How far apart, relatively, two numbers may be that are one number in float32."""


@dataclass
class Idiom:
    """Nodes that are one layer.

    Attributes:
        source: the value that they read.
        make: adds the layer.
        nodes: numbers of all of them.
    """

    source: str
    make: Make
    nodes: set[int] = field(default_factory=set)


class Search:
    """A graph and its constants.

    Args:
        graph: the model.
        constants: values that are known before any layer is made, by name.
    """

    def __init__(self, graph: Graph, constants: Mapping[str, Constant]) -> None:
        self.graph = graph
        self.constants = constants
        self.makers = {name: node for node in graph.nodes for name in node.outputs[:1]}

    def closes(self, idiom: Idiom, last: Node) -> bool:
        """Find the nodes between source and last one, and return whether nothing else reads what they make."""
        idiom.nodes = {last.number}
        waiting = [last]
        while waiting:
            for name in waiting.pop().inputs:
                node = self.makers.get(name)
                if name == idiom.source or name in self.constants or node is None or node.number in idiom.nodes:
                    continue
                idiom.nodes.add(node.number)
                waiting.append(node)
        inner = [self.graph.nodes[number] for number in idiom.nodes if number != last.number]
        return all(
            name not in self.graph.outputs
            and all(reader.number in idiom.nodes for reader in self.graph.readers.get(name, ()))
            for node in inner
            for name in node.outputs
        )

    def maker(self, name: str, operator: str) -> Node | None:
        """Return the node that makes a value, if it is of that operator and has its inputs."""
        node = self.makers.get(name)
        least = 2 if operator in ("Add", "Sub", "Mul", "Div", "Pow") else 1
        is_it = node is not None and node.operator == operator and not node.domain and len(node.inputs) >= least
        return node if is_it and name not in self.constants else None

    def number(self, name: str) -> float | None:
        """Return a constant of one value, or None."""
        known = self.constants.get(name)
        return float(known.tensor.reshape(())) if known is not None and known.tensor.numel() == 1 else None

    def terms(self, name: str, operator: str) -> tuple[str, float] | None:
        """Return the other value and the number of a sum or product with one."""
        node = self.maker(name, operator)
        for one, two in () if node is None else (node.inputs[:2], node.inputs[1::-1]):
            number = self.number(two)
            if number is not None:
                return one, number
        return None

    def peeled(self, name: str) -> tuple[str, float]:
        """Return what numbers are multiplied to, and their product."""
        product = 1.0
        while True:
            divided = self.maker(name, "Div")
            divisor = self.number(divided.inputs[1]) if divided is not None else None
            if divided is not None and divisor:
                name, product = divided.inputs[0], product / divisor
                continue
            found = self.terms(name, "Mul")
            if found is None:
                return name, product
            name, product = found[0], product * found[1]

    def gate(self, node: Node, number: float) -> Iterator[tuple[str, str]]:
        """Give all ways to read a product of two values and that number."""
        name, outside = self.peeled(node.outputs[0])
        product = self.maker(name, "Mul")
        if product is None:
            return
        choices = [[(each, 1.0), self.peeled(each)] for each in product.inputs[:2]]
        for (one, first), (two, second) in itertools.product(*choices):
            if is_close(outside * first * second, number):
                yield one, two
                yield two, one


def is_close(number: float | None, wanted: float) -> bool:
    """Return whether a number is there and is the one wanted, in float32."""
    return number is not None and math.isclose(number, wanted, rel_tol=_CLOSE)
