"""Arithmetic on whole blobs, and reductions: how each is written in ONNX."""

from __future__ import annotations

from functools import reduce

from mgcaffe.engine.layers.argmax import ArgMax
from mgcaffe.engine.layers.axpy import Axpy
from mgcaffe.engine.layers.bias import Bias
from mgcaffe.engine.layers.dot_interaction import DotInteraction
from mgcaffe.engine.layers.eltwise import PROD, SUM, Eltwise
from mgcaffe.engine.layers.matmul import MatMul
from mgcaffe.engine.layers.reduction import ASUM, MEAN, SUMSQ, Reduction
from mgcaffe.engine.layers.reduction import SUM as TOTAL
from mgcaffe.engine.layers.scale import Scale
from mgcaffe.engine.layers.shared.broadcast import BroadcastLayer
from mgcaffe.engine.layers.softmax import Softmax
from mgcaffe.tools.convert.onnx_out.emitter import Emitter, Operator


def eltwise(e: Emitter, layer: Eltwise) -> list[str]:
    """Sum of the bottoms, each times its coefficient (Mul); Mul of all, or Max."""
    if layer.operation == PROD:
        return [reduce(lambda product, x: e.node("Mul", product, x), e.bottoms)]
    if layer.operation != SUM:
        return [e.node("Max", *e.bottoms)]
    terms = [e.scaled(x, coefficient) for x, coefficient in zip(e.bottoms, layer.coefficients, strict=True)]
    return [e.node("Add" if len(terms) == 2 else "Sum", *terms)]


def scale(e: Emitter, layer: Scale) -> list[str]:
    """Mul, and Add with bias_term; the values get axes of size 1 behind those that they cover."""
    y = e.node("Mul", e.x, _stretched(e, layer))
    if layer.bias is None:
        return [y]
    return [e.node("Add", y, e.weight(len(layer.parameters) - 1, _stretched_shape(e, layer)))]


def bias(e: Emitter, layer: Bias) -> list[str]:
    """Add; the values get axes of size 1 behind those that they cover."""
    return [e.node("Add", e.x, _stretched(e, layer))]


def _stretched(e: Emitter, layer: BroadcastLayer) -> str:
    """Return the layer's values in a shape that broadcasts over the first bottom."""
    shape = _stretched_shape(e, layer)
    if layer.learned:
        return e.weight(0, shape)
    return e.bottoms[1] if shape == e.bottom_shapes[1] else e.reshape(e.bottoms[1], shape)


def _stretched_shape(e: Emitter, layer: BroadcastLayer) -> tuple[int, ...]:
    covered = tuple(layer.blob_shape)
    if covered and layer.axis == 0 and e.varies:
        e.refuse_varying()
    behind = len(e.bottom_shapes[0]) - layer.axis - len(covered)
    return (*covered, *[1] * behind) if covered else ()


def axpy(e: Emitter, layer: Axpy) -> list[str]:
    """Mul by the factors, with axes of size 1 behind the channels, and Add."""
    factors, x, y = e.bottoms
    shape = (*e.bottom_shapes[1][:2], *[1] * (len(e.bottom_shapes[1]) - 2))
    if shape != e.bottom_shapes[0]:
        factors = e.reshape(factors, shape)
    return [e.node("Add", e.node("Mul", factors, x), y)]


def matmul(e: Emitter, layer: MatMul) -> list[str]:
    """MatMul, behind a Transpose of what is transposed first."""
    factors = []
    for x, shape, transposed in zip(e.bottoms, e.bottom_shapes, layer.transposed, strict=True):
        last = len(shape) - 1
        factors.append(e.node("Transpose", x, perm=[*range(last - 1), last, last - 1]) if transposed else x)
    return [e.node("MatMul", *factors)]


def dot_interaction(e: Emitter, layer: DotInteraction) -> list[str]:
    """MatMul of the vectors with themselves, Gather of the pairs, and the first vector before them."""
    one = e.integers(1)
    parts = [x if joined else e.node("Unsqueeze", x, one) for x, joined in zip(e.bottoms, layer.joined, strict=True)]
    vectors = parts[0] if len(parts) == 1 else e.node("Concat", *parts, axis=1)
    products = e.node("MatMul", vectors, e.node("Transpose", vectors, perm=[0, 2, 1]))
    pairs = e.node("Gather", e.reshape(products, (0, -1)), e.integers(*layer.places[layer.size :].tolist()), axis=1)
    first = e.reshape(e.node("Slice", vectors, e.integers(0), one, one), (0, -1)) if layer.joined[0] else e.x
    return [e.node("Concat", first, pairs, axis=1)]


def softmax(e: Emitter, layer: Softmax) -> list[str]:
    """Softmax along the axis."""
    return [e.node("Softmax", e.x, axis=layer.axis)]


def reduction(e: Emitter, layer: Reduction) -> list[str]:
    """ReduceSum, ReduceL1, ReduceSumSquare or ReduceMean over the axes, and Mul by coeff."""
    operators = {TOTAL: "ReduceSum", ASUM: "ReduceL1", SUMSQ: "ReduceSumSquare", MEAN: "ReduceMean"}
    y = e.sums(e.x, layer.summed_axes, keep=False, operator=operators[layer.operation])
    return [e.scaled(y, layer.param.reduction_param.coeff)]


def argmax(e: Emitter, layer: ArgMax) -> list[str]:
    """ArgMax where top_k is 1, else TopK, of the values in reversed order: the last of equal ones counts in Caffe."""
    with_values, count = layer.param.argmax_param.out_max_val, layer.param.argmax_param.top_k
    if layer.axis is not None:
        values, places = _largest(e, e.x, layer.axis, e.bottom_shapes[0][layer.axis], count)
        return [values if with_values else e.to_floats(places)]
    values, places = _largest(e, e.reshape(e.x, layer.rows), 1, layer.rows[1], count)
    chosen = e.to_floats(places)
    if with_values:
        chosen = e.node("Concat", chosen, values, axis=1)
    return [e.reshape(chosen, layer.top_shape)]


def _largest(e: Emitter, x: str, axis: int, size: int, count: int) -> tuple[str, str]:
    """Return the largest values along an axis and their places (int64), the last place first among equal values."""
    if count == 1:
        places = e.node("ArgMax", x, axis=axis, select_last_index=1)
        return e.sums(x, [axis], operator="ReduceMax"), places
    start, end = e.integers(-1), e.integers(-size - 1)
    reversed_x = e.node("Slice", x, start, end, e.integers(axis), e.integers(-1))
    values, places = e.nodes("TopK", [reversed_x, e.integers(count)], 2, axis=axis)
    return values, e.node("Sub", e.integers(size - 1), places)


OPERATORS = (
    Operator("Eltwise", eltwise, "Add, Sum, Mul, Max", without_effect=("stable_prod_grad",), any_batch=True),
    Operator("Scale", scale, "Mul, Add, Reshape", any_batch=True),
    Operator("Bias", bias, "Add, Reshape", any_batch=True),
    Operator("Axpy", axpy, "Mul, Add, Reshape", any_batch=True),
    Operator("MatMul", matmul, "Transpose, MatMul", any_batch=True),
    Operator(
        "DotInteraction",
        dot_interaction,
        "Unsqueeze, Concat, Transpose, MatMul, Reshape, Gather, Slice",
        any_batch=True,
    ),
    Operator("Softmax", softmax, "Softmax", any_batch=True),
    Operator("Reduction", reduction, "ReduceSum, ReduceL1, ReduceSumSquare, ReduceMean, Mul", any_batch=True),
    Operator("ArgMax", argmax, "ArgMax, ReduceMax, TopK, Slice, Sub, Cast, Concat, Reshape", any_batch=True),
)
