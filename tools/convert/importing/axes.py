"""Layers that mix or reorder values along one axis by a matrix that is not trained."""

from __future__ import annotations

import torch

from mgcaffe.tools.convert.importing.filters import inner_product
from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.shapes import permuted
from mgcaffe.tools.convert.importing.values import Constant, Value

_MOST_WEIGHTS = 2**27
"""Along one axis: 1 GiB in float64."""


def check_size(op: Operation, new_size: int, size: int) -> None:
    """Refuse weights along an axis that are too many."""
    if new_size * size > _MOST_WEIGHTS:
        op.refuse(
            f"it makes {new_size} values of {size}, with a weight for each pair; at most {_MOST_WEIGHTS} are read"
        )


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
    check_size(op, size, size)
    return x if size == 1 else multiplied(op, x, axis, torch.eye(size).flip(0), part)


def widened_along(op: Operation, x: Value, axis: int, front: int, behind: int) -> Value:
    """Put zeros in front and behind along an axis: an InnerProduct with a unit matrix and rows of zeros."""
    if not front and not behind:
        return x
    if axis == 0 and op.first_is_batch:
        op.refuse("it pads the batch axis, which no layer does")
    size = x.shape[axis]
    check_size(op, size + front + behind, size)
    matrix = torch.nn.functional.pad(torch.eye(size), (0, 0, front, behind))
    return multiplied(op, op.as_blob(x), axis, matrix, f"zeros{axis}")
