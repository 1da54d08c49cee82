"""Finds layers that are written out as several nodes, as GELU, Swish, LayerNorm and LRN, and choices that never are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from mgcaffe.tools.convert.importing.normalization import layer_norm
from mgcaffe.tools.convert.importing.products import hides_a_row
from mgcaffe.tools.convert.importing.values import Constant, Shape, Value
from mgcaffe.tools.convert.onnx_in.graph import Graph, Node
from mgcaffe.tools.convert.onnx_in.neighbours import local_response_norm
from mgcaffe.tools.convert.onnx_in.operation import Operation
from mgcaffe.tools.convert.onnx_in.search import Idiom, Make, Search, is_close


def find_idioms(graph: Graph, constants: Mapping[str, Constant]) -> dict[int, Idiom]:
    """Return all idioms, by the number of their last node.

    Args:
        graph: the model.
        constants: values that are known before any layer is made, by name.
    """
    search = Search(graph, constants)
    found: dict[int, Idiom] = {}
    taken: set[int] = set()
    for node in reversed(graph.nodes):
        if node.number in taken or node.domain or node.operator not in ("Mul", "Div", "Add", "Where"):
            continue
        for matches in (
            (_never_nan,)
            if node.operator == "Where"
            else (local_response_norm, _layer_norm, _gelu, _hard_swish, _hard_sigmoid, _swish)
        ):
            idiom = matches(search, node)
            if idiom is not None and search.closes(idiom, node):
                found[node.number] = idiom
                taken |= idiom.nodes
                break
    return found


def _layer(kind: str, **fields: Any) -> Make:
    return lambda op, x: op.layer(kind, [x], x.shape, **fields)


def _multiple(search: Search, name: str, x: str) -> float | None:
    """Return how many times x a value is; None where it is none of it."""
    if name == x:
        return 1.0
    inner, number = search.peeled(name)
    if inner == x:
        return number
    found = search.terms(name, "Mul")
    return found[1] if found is not None and found[0] == x else None


def _gelu(search: Search, last: Node) -> Idiom | None:
    """Match x (1 + erf(x / sqrt(2))) / 2, and the form with tanh."""
    for x, gate in search.gate(last, 0.5):
        more = search.terms(gate, "Add")
        if more is None or more[1] != 1:
            continue
        erf, tanh = search.maker(more[0], "Erf"), search.maker(more[0], "Tanh")
        if erf is not None:
            if is_close(_multiple(search, erf.inputs[0], x), math.sqrt(0.5)):
                return Idiom(x, _layer("GELU"))
        if tanh is not None and _is_cubic(search, tanh.inputs[0], x):
            return Idiom(x, _layer("GELU", gelu_param={"approximate": "TANH"}))
    return None


def _is_cubic(search: Search, name: str, x: str) -> bool:
    """Return whether a value is sqrt(2 / pi) (x + 0.044715 x^3)."""
    name, factor = search.peeled(name)
    total = search.maker(name, "Add")
    if total is None or not is_close(factor, math.sqrt(2 / math.pi)) or x not in total.inputs:
        return False
    name, factor = search.peeled(total.inputs[1 if total.inputs[0] == x else 0])
    power, product = search.maker(name, "Pow"), search.maker(name, "Mul")
    if not is_close(factor, 0.044715):
        return False
    if power is not None:
        return power.inputs[0] == x and search.number(power.inputs[1]) == 3
    if product is None or x not in product.inputs:
        return False
    square = search.maker(product.inputs[0 if product.inputs[1] == x else 1], "Mul")
    return square is not None and list(square.inputs) == [x, x]


def _swish(search: Search, last: Node) -> Idiom | None:
    """Match x sigmoid(beta x)."""
    for x, gate in search.gate(last, 1):
        sigmoid = search.maker(gate, "Sigmoid")
        beta = _multiple(search, sigmoid.inputs[0], x) if sigmoid is not None else None
        if beta is not None:
            return Idiom(x, _layer("Swish", swish_param={"beta": beta} if beta != 1 else {}))
    return None


def _hard_swish(search: Search, last: Node) -> Idiom | None:
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
    return isinstance(alpha, float) and isinstance(beta, float) and is_close(alpha, 1 / 6) and beta == 0.5


def _hard_sigmoid(search: Search, last: Node) -> Idiom | None:
    """Match min(max(x + 3, 0), 6) / 6."""
    name, number = search.peeled(last.outputs[0])
    x = _clipped_from(search, name) if is_close(number, 1 / 6) else None
    return None if x is None else Idiom(x, _layer("HardSigmoid"))


def _clipped_from(search: Search, name: str) -> str | None:
    """Return x where a value is x + 3 limited to the interval from 0 to 6."""
    clip = search.maker(name, "Clip")
    if clip is None:
        return None
    bounds = [search.number(each) for each in clip.inputs[1:3]]
    if search.graph.opset < 11:
        bounds = [clip.attributes.get("min"), clip.attributes.get("max")]
    shifted = search.terms(clip.inputs[0], "Add")
    return shifted[0] if shifted is not None and bounds == [0, 6] and shifted[1] == 3 else None


def _never_nan(search: Search, last: Node) -> Idiom | None:
    """Match a choice of a number where a Softmax is NaN, if its mask is known and leaves something of each row."""
    if len(last.inputs) != 3:
        return None
    condition, _, y = last.inputs
    test, softmax = search.maker(condition, "IsNaN"), search.maker(y, "Softmax")
    if test is None or test.inputs[0] != y or softmax is None or softmax.attributes.get("axis") != -1:
        return None
    total = search.maker(softmax.inputs[0], "Add")
    masks = [search.constants[name].tensor for name in (total.inputs if total else ()) if name in search.constants]
    if len(masks) != 1 or not masks[0].dim() or hides_a_row(masks[0]):
        return None
    return Idiom(y, lambda op, x: x)


def _layer_norm(search: Search, last: Node) -> Idiom | None:
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
            None if each is None else Constant(_whole(op, each.tensor, shape), each.name, each.trained)
            for each in (weight, addend)
        ]
        op.shape = x.shape
        return layer_norm(op, x, blobs[0], blobs[1], eps=eps, axes=axes)

    sizes = [each.tensor.dim() for each in (weight, addend) if each is not None]
    return Idiom(centre.inputs[0], make) if all(size == axes for size in sizes) else None


def _whole(op: Operation, parameter: torch.Tensor, shape: Shape) -> torch.Tensor:
    """Return a scale or bias in the shape of the axes that are normalized."""
    given = tuple(parameter.shape)
    if op.broadcast(given, shape) != shape:
        op.refuse(f"it normalizes axes of {shape}, which a scale or bias of {given} makes longer")
    return parameter.expand(shape)


def _parameter(search: Search, node: Node, operator: str) -> tuple[str, Constant] | None:
    """Return the other value and the constant of a sum or product with a constant of several values."""
    if node.operator != operator or len(node.inputs) < 2:
        return None
    for one, two in (node.inputs[:2], node.inputs[1::-1]):
        known = search.constants.get(two)
        if known is not None and known.tensor.dim():
            return one, known
    return None


def _is_square(search: Search, name: str, centre: Node) -> bool:
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


def _mean(search: Search, name: str) -> tuple[str, int] | None:
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
