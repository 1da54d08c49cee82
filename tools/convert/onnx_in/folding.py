"""Computes nodes whose inputs are all known: shapes put together of other shapes, constants of idioms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from mgcaffe.errors import DataError, describe_exception
from mgcaffe.tools.convert.onnx_in.graph import Graph, Node

MOST_VALUES = 2**28
"""The most values that a computed constant may have."""
_FORMS = 4
"""In how many forms (cast, transposed, in another shape) all constants of a file may be computed."""

Arrays = Sequence[np.ndarray | None]


def _largest(arrays: Arrays) -> int:
    return max((each.size for each in arrays if each is not None), default=1)


def _given(arrays: Arrays) -> int:
    return sum(each.size for each in arrays if each is not None)


def _broadcast(arrays: Arrays) -> int:
    return math.prod(np.broadcast_shapes(*(each.shape for each in arrays if each is not None)))


def _asked(arrays: Arrays) -> int:
    """Return the size of a shape that the last input gives."""
    return math.prod(int(size) for size in _array(arrays, len(arrays) - 1).reshape(-1))


def _expanded(arrays: Arrays) -> int:
    """Return the size of what is broadcast to the shape in the last input."""
    shape = tuple(int(size) for size in _array(arrays, 1).reshape(-1))
    return math.prod(np.broadcast_shapes(_array(arrays, 0).shape, shape))


def _repeated(arrays: Arrays) -> int:
    return _array(arrays, 0).size * _asked(arrays)


def _range(arrays: Arrays) -> int:
    start, limit, step = (float(_array(arrays, number).reshape(())) for number in range(3))
    return max(0, math.ceil((limit - start) / step))


def _gathered(arrays: Arrays) -> int:
    return _array(arrays, 0).size * max(1, _array(arrays, 1).size)


def _multiplied(arrays: Arrays) -> int:
    one, two = _array(arrays, 0), _array(arrays, 1)
    return one.size * two.size // max(1, one.shape[-1] if one.ndim else 1)


def _array(arrays: Arrays, number: int) -> np.ndarray:
    found = arrays[number] if number < len(arrays) else None
    if found is None:
        raise ValueError(f"input {number} is missing")
    return found


# By operator: how many values the result has, at least so many as to tell what is too large.
_COMPUTED: Mapping[str, Callable[[Arrays], int]] = {
    **dict.fromkeys(
        ("Cast", "CastLike", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split",
         "Neg", "Abs", "Floor", "Ceil", "Round", "Sqrt", "Exp", "Log", "Reciprocal", "Not", "Sigmoid", "Tanh", "Relu",
         "Clip", "ReduceProd", "ReduceSum", "ReduceMean", "ReduceMin", "ReduceMax", "CumSum", "NonZero", "Trilu",
         "ScatterND"),
        _largest,
    ),
    **dict.fromkeys(
        ("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Min", "Max", "Equal", "Less", "LessOrEqual", "Greater",
         "GreaterOrEqual", "And", "Or", "Xor", "Where"),
        _broadcast,
    ),
    "Concat": _given,
    "Constant": lambda arrays: 0,
    "ConstantOfShape": _asked,
    "Expand": _expanded,
    "Tile": _repeated,
    "Range": _range,
    "Gather": _gathered,
    "MatMul": _multiplied,
}  # fmt: skip
OF_SHAPES = ("Shape", "Size")
"""Operators whose results are constants also where their inputs are blobs."""


def is_computed(node: Node) -> bool:
    """Return whether a node can be computed where its inputs are known."""
    return not node.domain and (node.operator in _COMPUTED or node.operator in OF_SHAPES)


def shape_values(node: Node, shape: Sequence[int], opset: int) -> torch.Tensor:
    """Return what a Shape or Size makes of a value of that shape."""
    if node.operator == "Size":
        return torch.tensor(math.prod(shape))
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    if opset < 15 or not all(isinstance(each, (int, type(None))) for each in (start, end)):
        start = end = None
    return torch.tensor(tuple(shape)[start or 0 : end], dtype=torch.int64)


class Allowance:
    """How many values the computed constants of a graph may have together, so that a small file takes little memory.

    Args:
        graph: the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._left = MOST_VALUES + _FORMS * sum(tensor.numel() for tensor in graph.tensors.values())

    def allows(self, count: int) -> bool:
        """Return whether there may be so many values more."""
        return count <= self._left

    def count(self, results: Sequence[torch.Tensor], *, in_file: bool) -> None:
        """Take account of what a node has made; what is in the file may be computed in other forms."""
        values = sum(each.numel() for each in results)
        self._left += _FORMS * values if in_file else -values


def compute(
    graph: Graph, node: Node, inputs: Sequence[torch.Tensor | None], allowance: Allowance
) -> list[torch.Tensor | None]:
    """Return the outputs of a node.

    Args:
        graph: that it is in.
        node: the node.
        inputs: its inputs; None for one that is left out.
        allowance: counts the values of the outputs.

    Raises:
        DataError: its inputs do not fit together, or the result is too large.
    """
    arrays = [None if each is None else each.numpy() for each in inputs]
    try:
        with np.errstate(all="ignore"):
            count = _COMPUTED[node.operator](arrays)
            if count > MOST_VALUES:
                raise DataError(f"{graph.path}: a constant has {count} values, which is too many ({node})")
            if node.operator == "Identity":
                return [inputs[0]]
            if not allowance.allows(count):
                raise DataError(f"{graph.path}: its constants together have too many values ({node})")
            constant = node.operator == "Constant"
            results = [_constant(node)] if constant else [_as_tensor(each) for each in _run(graph, node, arrays)]
            allowance.count(results, in_file=constant)
            return list(results)
    except DataError:
        raise
    except Exception as error:  # onnx computes with numpy, whose functions find out what does not fit
        raise DataError(f"{graph.path}: {' '.join(describe_exception(error).split())[:200]} ({node})") from None


def _constant(node: Node) -> torch.Tensor:
    """Return the value of a Constant, which one of several attributes has."""
    for name, dtype in (
        ("value", None), ("value_float", torch.float32), ("value_floats", torch.float32), ("value_int", torch.int64),
        ("value_ints", torch.int64),
    ):  # fmt: skip
        value = node.attributes.get(name)
        if value is not None:
            return value if isinstance(value, torch.Tensor) else torch.tensor(value, dtype=dtype)
    raise ValueError("it has no value that is read")


def _run(graph: Graph, node: Node, arrays: Arrays) -> list[Any]:
    """Have onnx compute the node with numpy, as a model of its own: a node by itself is taken for one of today's."""
    from onnx import ValueInfoProto
    from onnx.helper import make_graph, make_model, make_node, make_opsetid
    from onnx.numpy_helper import from_array
    from onnx.reference import ReferenceEvaluator

    names = ["" if each is None else f"x{number}" for number, each in enumerate(arrays)]
    attributes: dict[str, Any] = {
        name: from_array(value.numpy()) if isinstance(value, torch.Tensor) else value
        for name, value in node.attributes.items()
        if value is not None
    }
    outputs = [f"y{number}" for number in range(len(node.outputs))]
    inputs = {name: each for name, each in zip(names, arrays, strict=True) if name}
    lone = make_graph(
        [make_node(node.operator, names, outputs, **attributes)],
        "constant",
        [ValueInfoProto(name=name) for name in inputs],
        [ValueInfoProto(name=name) for name in outputs],
    )
    evaluator = ReferenceEvaluator(make_model(lone, opset_imports=[make_opsetid("", graph.opset)]))
    return list(evaluator.run(None, inputs))


def _as_tensor(value: Any) -> torch.Tensor:
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise ValueError(f"it makes {array.dtype}, which is not read")
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    return torch.from_numpy(np.array(array))
