"""Finds layers that are written out as several nodes: GELU, Swish, HardSwish, HardSigmoid, LayerNorm."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mgcaffe.tools.convert.importing.normalization import layer_norm
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


def find_idioms(graph: Graph, constants: Mapping[str, Constant]) -> dict[int, Idiom]:
    """Return all idioms, by the number of their last node.

    Args:
        graph: the model.
        constants: values that are known before any layer is made, by name.
    """
    search = _Search(graph, constants)
    found: dict[int, Idiom] = {}
    taken: set[int] = set()
    for node in reversed(graph.nodes):
        if node.number in taken or node.domain or node.operator not in ("Mul", "Div", "Add"):
            continue
        for matches in (_layer_norm, _gelu, _hard_swish, _hard_sigmoid, _swish):
            idiom = matches(search, node)
            if idiom is not None and search.closes(idiom, node):
                found[node.number] = idiom
                taken |= idiom.nodes
                break
    return found


class _Search:
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
            if _is(outside * first * second, number):
                yield one, two
                yield two, one


def _layer(kind: str, **fields: Any) -> Make:
    return lambda op, x: op.layer(kind, [x], x.shape, **fields)


def _is(number: float | None, wanted: float) -> bool:
    return number is not None and math.isclose(number, wanted, rel_tol=_CLOSE)


def _multiple(search: _Search, name: str, x: str) -> float | None:
    """Return how many times x a value is; None where it is none of it."""
    if name == x:
        return 1.0
    inner, number = search.peeled(name)
    if inner == x:
        return number
    found = search.terms(name, "Mul")
    return found[1] if found is not None and found[0] == x else None


def _gelu(search: _Search, last: Node) -> Idiom | None:
    """Match x (1 + erf(x / sqrt(2))) / 2, and the form with tanh."""
    for x, gate in search.gate(last, 0.5):
        more = search.terms(gate, "Add")
        if more is None or more[1] != 1:
            continue
        erf, tanh = search.maker(more[0], "Erf"), search.maker(more[0], "Tanh")
        if erf is not None:
            if _is(_multiple(search, erf.inputs[0], x), math.sqrt(0.5)):
                return Idiom(x, _layer("GELU"))
        if tanh is not None and _is_cubic(search, tanh.inputs[0], x):
            return Idiom(x, _layer("GELU", gelu_param={"approximate": "TANH"}))
    return None


def _is_cubic(search: _Search, name: str, x: str) -> bool:
    """Return whether a value is sqrt(2 / pi) (x + 0.044715 x^3)."""
    name, factor = search.peeled(name)
    total = search.maker(name, "Add")
    if total is None or not _is(factor, math.sqrt(2 / math.pi)) or x not in total.inputs:
        return False
    name, factor = search.peeled(total.inputs[1 if total.inputs[0] == x else 0])
    power, product = search.maker(name, "Pow"), search.maker(name, "Mul")
    if not _is(factor, 0.044715):
        return False
    if power is not None:
        return power.inputs[0] == x and search.number(power.inputs[1]) == 3
    if product is None or x not in product.inputs:
        return False
    square = search.maker(product.inputs[0 if product.inputs[1] == x else 1], "Mul")
    return square is not None and list(square.inputs) == [x, x]


def _swish(search: _Search, last: Node) -> Idiom | None:
    """Match x sigmoid(beta x)."""
    for x, gate in search.gate(last, 1):
        sigmoid = search.maker(gate, "Sigmoid")
        beta = _multiple(search, sigmoid.inputs[0], x) if sigmoid is not None else None
        if beta is not None:
            return Idiom(x, _layer("Swish", swish_param={"beta": beta} if beta != 1 else {}))
    return None


def _hard_swish(search: _Search, last: Node) -> Idiom | None:
    """Match x min(max(x + 3, 0), 6) / 6, and x times the HardSigmoid that is the same."""
    for x, gate in search.gate(last, 1 / 6):
        if _clipped_from(search, gate) == x:
            return Idiom(x, _layer("HardSwish"))
    for x, gate in search.gate(last, 1):
        node = search.maker(gate, "HardSigmoid")
        if node is not None and node.inputs[0] == x and _has_sixth(node):
            return Idiom(x, _layer("HardSwish"))
    return None


def _has_sixth(node: Node) -> bool:
    """Return whether a HardSigmoid's slope is 1/6, and its middle 0."""
    alpha, beta = node.attributes.get("alpha"), node.attributes.get("beta", 0.5)
    return isinstance(alpha, float) and isinstance(beta, float) and _is(alpha, 1 / 6) and beta == 0.5


def _hard_sigmoid(search: _Search, last: Node) -> Idiom | None:
    """Match min(max(x + 3, 0), 6) / 6."""
    name, number = search.peeled(last.outputs[0])
    x = _clipped_from(search, name) if _is(number, 1 / 6) else None
    return None if x is None else Idiom(x, _layer("HardSigmoid"))


def _clipped_from(search: _Search, name: str) -> str | None:
    """Return x where a value is x + 3 limited to the interval from 0 to 6."""
    clip = search.maker(name, "Clip")
    if clip is None:
        return None
    bounds = [search.number(each) for each in clip.inputs[1:3]]
    if search.graph.opset < 11:
        bounds = [clip.attributes.get("min"), clip.attributes.get("max")]
    shifted = search.terms(clip.inputs[0], "Add")
    return shifted[0] if shifted is not None and bounds == [0, 6] and shifted[1] == 3 else None


def _layer_norm(search: _Search, last: Node) -> Idiom | None:
    """Match (x - mean) / sqrt(variance + eps), with the factor and the sum behind that belong to it."""
    bias = _parameter(search, last, "Add")
    scaled = last if bias is None else search.maker(bias[0], "Mul")
    scale = None if scaled is None else _parameter(search, scaled, "Mul")
    if bias is not None and scale is None:
        return None
    quotient = last if scale is None and last.operator == "Div" else search.maker(scale[0], "Div") if scale else None
    if quotient is None or len(quotient.inputs) < 2:
        return None
    centered, root = quotient.inputs[0], search.maker(quotient.inputs[1], "Sqrt")
    under = None if root is None else search.terms(root.inputs[0], "Add")
    mean_of = None if under is None else _mean(search, under[0])
    centre = search.maker(centered, "Sub")
    if under is None or mean_of is None or centre is None or not _is_square(search, mean_of[0], centre):
        return None
    first = _mean(search, centre.inputs[1])
    if first is None or first != (centre.inputs[0], mean_of[1]):
        return None
    eps, axes = under[1], mean_of[1]
    weight, addend = (each and each[1] for each in (scale, bias))

    def make(op: Operation, x: Value) -> Value:
        shape = x.shape[len(x.shape) - axes :]
        blobs = [
            None if each is None else Constant(each.tensor.expand(shape), each.name, each.trained)
            for each in (weight, addend)
        ]
        op.shape = x.shape
        return layer_norm(op, x, blobs[0], blobs[1], eps=eps, axes=axes)

    sizes = [each.tensor.dim() for each in (weight, addend) if each is not None]
    return Idiom(centre.inputs[0], make) if all(size == axes for size in sizes) else None


def _parameter(search: _Search, node: Node, operator: str) -> tuple[str, Constant] | None:
    """Return the other value and the constant of a sum or product with a constant of several values."""
    if node.operator != operator or len(node.inputs) < 2:
        return None
    for one, two in (node.inputs[:2], node.inputs[1::-1]):
        known = search.constants.get(two)
        if known is not None and known.tensor.dim():
            return one, known
    return None


def _is_square(search: _Search, name: str, centre: Node) -> bool:
    """Return whether a value is the square of what a node makes, or of one that is the same difference."""
    power, product = search.maker(name, "Pow"), search.maker(name, "Mul")
    if power is not None and search.number(power.inputs[1]) == 2:
        base = power.inputs[0]
    elif product is not None and product.inputs[0] == product.inputs[1]:
        base = product.inputs[0]
    else:
        return False
    difference = search.maker(base, "Sub")
    return difference is not None and list(difference.inputs) == list(centre.inputs)


def _mean(search: _Search, name: str) -> tuple[str, int] | None:
    """Return what a ReduceMean over the last axes reads, and how many axes these are."""
    node = search.maker(name, "ReduceMean")
    if node is None or node.attributes.get("keepdims", 1) != 1:
        return None
    axes = node.attributes.get("axes")
    if search.graph.opset >= 18:
        known = search.constants.get(node.inputs[1]) if len(node.inputs) > 1 else None
        axes = None if known is None else [int(each) for each in known.tensor.reshape(-1)]
    if not isinstance(axes, list) or not axes or sorted(axes) != list(range(-len(axes), 0)):
        return None
    return node.inputs[0], len(axes)
