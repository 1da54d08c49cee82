"""Layers that mix or reorder values along one axis by a matrix that is not trained."""

from __future__ import annotations

import torch

from mgcaffe.tools.convert.importing.filters import inner_product
from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.shapes import permuted
from mgcaffe.tools.convert.importing.values import Constant, Value


def multiplied(op: Operation, x: Value, axis: int, matrix: torch.Tensor, part: str) -> Value:
    """Multiply by a matrix along an axis: an InnerProduct, between Permutes where the axis is not the last.

    Args:
        op: the operator; its shape is left as it is.
        x: two axes or more.
        axis: which, counted from the front.
        matrix: float32, (new size, size).
        part: what the layers are for.
    """
    wanted, last = op.shape, len(x.shape) - 1
    order = list(range(len(x.shape)))
    order[axis], order[last] = last, axis
    turned = permuted(op, x, order, f"{part}_last")
    op.shape = (*turned.shape[:-1], len(matrix))
    y = inner_product(op, turned, Constant(matrix), None, part)
    op.shape = wanted
    return permuted(op, y, order, f"{part}_back")


def flipped(op: Operation, x: Value, axis: int, part: str) -> Value:
    """Reverse the order along an axis: an InnerProduct with the ones of a reversed unit matrix."""
    size = x.shape[axis]
    return x if size == 1 else multiplied(op, x, axis, torch.eye(size).flip(0), part)
