"""The gradient of a large weight of an inner product, kept as the two matrices whose product it is.

The gradient of a weight of N x K values over M rows is left^T right, of M x N and M x K values. AlexNet's fc6 has 37.7
million weights, and with a batch of 16 its two matrices have 0.2 million values together. So the gradient is not
written to memory in backward, read again to see whether it is finite, and read again by the update: the update makes
it piece by piece, in memory that stays in a cache, and the parameter's own gradient never gets pages from the kernel.
For a weight of 4096 x 9216, product, check and update take 0.76 of the time with 16 rows, 0.83 with 128 and as long
with 256 (one thread of an Intel Xeon, family 6, model 207). Several ranks exchange the matrices instead of the gradient
(`solvers/update/kept_products.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from mgcaffe.engine.kernels import linear, linear_ways
from mgcaffe.engine.kernels.choice.choices import Choices, add_rounded
from mgcaffe.engine.parameter import Parameter

_TIMES_SMALLER = 8


class ProductGradient:
    """`factor` times left^T right, which is not computed yet.

    Args:
        like: a tensor of the gradient's shape and type, on a CPU; its values are not read.
        left, right: the matrices, (M, N) and (M, K); what they hold when the product is computed counts.
        choices: which way the product is computed by: that of the whole product.
        factor: a number.

    Attributes:
        left, right: the same, maybe in another type.
    """

    def __init__(
        self, like: torch.Tensor, left: torch.Tensor, right: torch.Tensor, choices: Choices, factor: float = 1.0
    ) -> None:
        self.left, self.right = linear.operands_of_product(like, left, right)
        self._like, self._factor, self._choices = like, factor, choices
        self._candidate = None
        if self.left.dtype == like.dtype:
            whole = linear_ways.AddProduct(like, 0.0, self.left, self.right)
            self._candidate = choices.candidate(linear_ways.ADD_PRODUCT, whole)

    @property
    def is_surely_finite(self) -> bool:
        """Whether no value of left^T right can be infinite or NaN; False where that is not certain."""
        most = float(self.left.abs().max()) * float(self.right.abs().max()) * len(self.left)
        return most <= torch.finfo(self.left.dtype).max

    def pieces(self) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yield which rows of the gradient come, and these rows, whose memory the next ones use again."""
        left, parts = self._scaled_left(), row_pieces(self._like)
        memory = torch.empty((parts[0].stop, self._like.shape[1]), dtype=self._like.dtype)
        for part in parts:
            piece = memory[: part.stop - part.start]
            self._compute(piece, left[:, part])
            yield part, piece

    def write(self, total: torch.Tensor) -> None:
        """Write the whole gradient to a tensor of its shape."""
        left = self._scaled_left()
        for part in row_pieces(self._like):
            self._compute(total[part], left[:, part])

    def _scaled_left(self) -> torch.Tensor:
        return self.left if self._factor == 1 else self.left * self._factor

    def _compute(self, piece: torch.Tensor, left: torch.Tensor) -> None:
        call = linear_ways.AddProduct(piece, 0.0, left, self.right)
        if self._candidate is not None:
            self._candidate.run(call)
        else:
            add_rounded(self._choices, linear_ways.ADD_PRODUCT, call, left.dtype)


def row_pieces(gradient: torch.Tensor) -> list[slice]:
    """Return the rows of the pieces in which a gradient is made, and used up; at least one piece."""
    rows = linear_ways.rows_of_piece(gradient)
    return [slice(start, min(start + rows, len(gradient))) for start in range(0, len(gradient), rows)]


def suits_product(rows: int, shape: tuple[int, ...]) -> bool:
    """Return whether a gradient of so many rows and this shape is large, and its two matrices are much smaller."""
    count = shape[0] * shape[1]
    return linear_ways.LARGE_WEIGHT <= count and 0 < _TIMES_SMALLER * rows * sum(shape) <= count


def add_product(parameter: Parameter, left: torch.Tensor, right: torch.Tensor, choices: Choices) -> None:
    """Add left^T right to a parameter's gradient, or keep it as a product where the parameter allows that.

    Args:
        parameter: of shape (N, K).
        left, right: of shapes (M, N) and (M, K).
        choices: which way the product is computed by.
    """
    if parameter.fresh:
        parameter.product = None
    if parameter.keeps_product and parameter.fresh and suits_product(len(left), parameter.shape):
        # Layers below may write over the memory of both.
        parameter.product = ProductGradient(parameter.diff, left.clone(), right.clone(), choices)
        parameter.fresh = False
    else:
        linear.add_product(parameter.diff, left, right, parameter.beta(), choices)
