"""Operators that compare two vectors: the cosine of their angle, and how far apart they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from mgcaffe.tools.convert.importing.arithmetic import product_of, quotient_of, sum_of
from mgcaffe.tools.convert.importing.reductions import norm_of, reduced
from mgcaffe.tools.convert.importing.shapes import tiled, with_rank
from mgcaffe.tools.convert.importing.values import Result, Shape, Value
from mgcaffe.tools.convert.torch_in.operation import Operation


def _vectors(op: Operation) -> tuple[Value, Value, Shape]:
    """Return both operands and the shape that they have together."""
    one, two = (op.as_blob(op[name]) for name in ("x1", "x2"))
    return one, two, tuple(np.broadcast_shapes(one.shape, two.shape))


def cosine_similarity(op: Operation) -> Value:
    """cosine_similarity: Scale by reciprocals of lengths, which ReLU and Eltwise keep from being small; Reduction."""
    if not op["eps"] > 0:
        op.refuse(f"its eps is {op['eps']:g}, with which it is NaN for vectors of zeros")
    *vectors, shape = _vectors(op)
    axis = op["dim"] % len(shape)
    one, two = (_divided(op, x, axis - len(shape), shape, f"x{number}") for number, x in enumerate(vectors, 1))
    with op.step("products", shape):
        products = product_of(op, one, two)
    return reduced(op, products, "SUM", [axis], keep_axes=False)


def _divided(op: Operation, x: Value, axis: int, shape: Shape, name: str) -> Value:
    """Divide vectors by their lengths, or by eps where they are shorter.

    Args:
        op: the operator.
        x: the vectors.
        axis: along which they are, counted from behind.
        shape: what they are broadcast to.
        name: what to call them.
    """
    with op.step(name, shape):
        own = x.shape[axis] if len(x.shape) >= -axis else 1
        rank = -axis if own == shape[axis] else 1 - axis  # Tile repeats others than the first
        x = with_rank(op, x, max(len(x.shape), rank, 2))  # Reduction leaves an axis
        repeats = [1] * len(x.shape)
        repeats[axis] = shape[axis] // x.shape[axis]
        x = tiled(op, x, repeats)
    with op.step(f"{name}.length", x.shape):
        length = norm_of(op, x, 2, [axis], keep_axes=True)
        op.shape = length.shape
        length = _limited(op, length, op["eps"])
    with op.step(f"{name}.divided", x.shape):
        return quotient_of(op, x, length)


def _limited(op: Operation, length: Value, eps: float) -> Value:
    """Return eps where lengths are below it. No gradient flows to what is added, so all of it goes to the lengths."""
    missing = op.layer("Power", [length], part="missing", power_param={"scale": -1, "shift": eps})
    added = op.layer("ReLU", [missing], part="added", propagate_down=[False])
    return op.layer("Eltwise", [length, added])


def pairwise_distance(op: Operation) -> Value:
    """pairwise_distance: as sub, Power for eps, and the norm along the last axis."""
    one, two, shape = _vectors(op)
    with op.step("difference", shape):
        difference = sum_of(op, one, two, -1)
    if op["eps"]:
        param = {"shift": op["eps"]}
        difference = op.layer("Power", [difference], shape, part="shifted", power_param=param)
    return norm_of(op, difference, op["p"], [len(shape) - 1], keep_axes=op["keepdim"])


OPERATORS: Mapping[str, Callable[[Operation], Result]] = {
    "cosine_similarity": cosine_similarity,
    "pairwise_distance": pairwise_distance,
}
