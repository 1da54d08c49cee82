"""Matrix products of an inner product and its gradients; `choices` says which of `linear_ways.py` is taken.

Shapes: x (M, K), weight (N, K), y and dy (M, N), bias (N).
"""

from __future__ import annotations

import torch

from mgcaffe.engine.kernels import linear_ways, onednn
from mgcaffe.engine.kernels.choice.choices import RULES, Choices
from mgcaffe.engine.kernels.linear_ways import ADD_PRODUCT, BACKWARD_DATA, FORWARD, AddProduct, BackwardData, Forward


def forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    relu: bool = False,
    choices: Choices = RULES,
) -> torch.Tensor:
    """y = x weight^T + bias, and with `relu` max(y, 0)."""
    y: torch.Tensor = choices.run(FORWARD, Forward(x, weight, bias, relu))
    return y


def add_forward(y: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    """Add x weight^T to y, in place; for many products with few rows each (recurrent layers)."""
    if linear_ways.is_large(weight) and onednn.serves(x):
        y.add_(forward(x, weight, None))
    else:
        y.addmm_(x, weight.t())


def backward_data(dy: torch.Tensor, weight: torch.Tensor, choices: Choices = RULES) -> torch.Tensor:
    """dx = dy weight."""
    dx: torch.Tensor = choices.run(BACKWARD_DATA, BackwardData(dy, weight))
    return dx


def add_product(
    total: torch.Tensor, left: torch.Tensor, right: torch.Tensor, beta: float, choices: Choices = RULES
) -> None:
    """Total = beta total + left^T right, in place; with beta 0 what `total` held does not matter."""
    choices.run(ADD_PRODUCT, AddProduct(total, beta, left, right))
