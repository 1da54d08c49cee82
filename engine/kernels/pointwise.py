"""Convolution with a filter of one pixel, channels last: matrix products over the pixels.

Shapes: x (N, C, H, W) and y (N, O, H / stride, W / stride), both channels last; weight (O, C, 1, 1). A stride
leaves pixels out before the product, and puts zeros in their places in the gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import linear, onednn
from mgcaffe.engine.kernels.formats import format_of, from_pixel_rows, pixel_rows
from mgcaffe.engine.kernels.geometry import Geometry

_FEW_ROWS = 2048
_FEW_PIXELS = 256


def serves(x: torch.Tensor, geometry: Geometry) -> bool:
    """Return whether these functions are the fast way for x (or dy) and this geometry.

    With a stride they are only for small images; picking pixels out of large ones costs more than it wins.
    """
    if geometry.kernel != (1, 1) or geometry.groups != 1 or geometry.pad != (0, 0):
        return False
    if geometry.stride != (1, 1) and x.shape[2] * x.shape[3] > _FEW_PIXELS * math.prod(geometry.stride):
        return False
    return format_of(x) == torch.channels_last and onednn.serves(x)


def forward(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: Geometry, relu: bool
) -> torch.Tensor:
    """y = x * weight + bias."""
    x = _visited(x, geometry)
    batch, _, height, width = x.shape
    y = onednn.linear(pixel_rows(x), weight.flatten(1), bias, "relu" if relu else "none")
    return from_pixel_rows(y, batch, height, width)


def backward_data(
    dy: torch.Tensor, weight: torch.Tensor, input_size: Sequence[int], geometry: Geometry
) -> torch.Tensor:
    """dx, of spatial size `input_size`."""
    batch, _, height, width = dy.shape
    visited = from_pixel_rows(onednn.linear(pixel_rows(dy), weight.flatten(1).t()), batch, height, width)
    if geometry.stride == (1, 1):
        return visited
    shape = (batch, weight.shape[1], *input_size)
    dx = torch.empty(shape, dtype=dy.dtype, memory_format=torch.channels_last).zero_()
    _visited(dx, geometry).copy_(visited)
    return dx


def add_backward_weight(
    total: torch.Tensor, dy: torch.Tensor, x: torch.Tensor, geometry: Geometry, beta: float
) -> None:
    """Total = beta total + the gradient of the weight, in place."""
    rows, gradients = pixel_rows(_visited(x, geometry)), pixel_rows(dy)
    total = total.view(dy.shape[1], x.shape[1])
    if rows.shape[0] > _FEW_ROWS:
        linear.add_product(total, gradients, rows, beta)
        return
    product = onednn.linear(gradients.t(), rows.t())
    if beta:
        total.add_(product)
    else:
        total.copy_(product)


def _visited(x: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """Return the pixels that the filter visits; a view."""
    down, right = geometry.stride
    return x if geometry.stride == (1, 1) else x[:, :, ::down, ::right]
