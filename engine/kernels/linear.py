"""Matrix products of an inner product and its gradients; `choices` says which of `linear_ways.py` is taken.

Shapes: x (M, K), weight (N, K), y and dy (M, N), bias (N). Where x (or dy) is of 16 bits the weight and the bias are
rounded to them and so is the result; what is added to something is added in that one's own type.
"""

from __future__ import annotations

import torch

from mgcaffe.engine.kernels import linear_ways, onednn
from mgcaffe.engine.kernels.choice.choices import RULES, Choices, add_rounded, compute
from mgcaffe.engine.kernels.linear_ways import ADD_PRODUCT, BACKWARD_DATA, FORWARD, AddProduct, BackwardData, Forward
from mgcaffe.engine.kernels.precision import needs_float32


def forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    relu: bool = False,
    choices: Choices = RULES,
) -> torch.Tensor:
    """y = x weight^T + bias, and with `relu` max(y, 0)."""
    bias = None if bias is None else bias.to(x.dtype)
    y: torch.Tensor = compute(choices, FORWARD, Forward(x, weight.to(x.dtype), bias, relu))
    return y


def add_forward(y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Add x weight^T to y, in place; for many products with few rows each (recurrent layers)."""
    if y.dtype != x.dtype or (linear_ways.is_large(weight) and onednn.serves(x)):
        y.add_(forward(x, weight, None))
    else:
        y.addmm_(x, weight.t())


def backward_data(dy: torch.Tensor, weight: torch.Tensor, choices: Choices = RULES) -> torch.Tensor:
    """dx = dy weight."""
    dx: torch.Tensor = compute(choices, BACKWARD_DATA, BackwardData(dy, weight.to(dy.dtype)))
    return dx


def add_product(
    total: torch.Tensor, left: torch.Tensor, right: torch.Tensor, beta: float, choices: Choices = RULES
) -> None:
    """Total = beta total + left^T right, in place; with beta 0 what `total` held does not matter.

    Both left and right have one type; where total has another, the product is rounded to it before it is added. On a
    CPU that happens in pieces that a cache holds: for a weight of 4096 x 9216 in bf16, on an AMD EPYC (family 26, model
    2), it takes 0.78 of the time of one piece with 16 rows and as long with 64, and no second tensor of that size.
    A large total of float32 gets the product of operands that are widened straight into its place, without rounding it.
    """
    left, right = operands_of_product(total, left, right)
    dtype = left.dtype
    if total.dtype == dtype or not total.is_cpu:
        add_rounded(choices, ADD_PRODUCT, AddProduct(total, beta, left, right), dtype)
        return
    rows = linear_ways.rows_of_piece(total)
    for part, columns in zip(total.split(rows), left.split(rows, 1), strict=True):
        add_rounded(choices, ADD_PRODUCT, AddProduct(part, beta, columns, right), dtype)


def operands_of_product(
    total: torch.Tensor, left: torch.Tensor, right: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return left and right as `add_product` multiplies them: widened where a large total takes less time so."""
    is_narrower = left.dtype != total.dtype == torch.float32
    if is_narrower and total.is_cpu and linear_ways.is_large(total):
        if needs_float32(left) or linear_ways.suits_float32(left):
            return left.float(), right.float()
    return left, right
