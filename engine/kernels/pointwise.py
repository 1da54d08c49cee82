"""Convolution with a filter of one pixel, channels last: matrix products over the pixels.

Shapes: x (N, C, H, W) and y (N, O, H / stride, W / stride), both channels last; weight (O, C, 1, 1). A stride
leaves pixels out before the product, and puts zeros in their places in the gradient.
"""

from __future__ import annotations

import math

import torch

from mgcaffe.engine.kernels import onednn
from mgcaffe.engine.kernels.formats import format_of, pixel_rows
from mgcaffe.engine.kernels.geometry import Geometry

_FEW_PIXELS = 256


def serves(x: torch.Tensor, geometry: Geometry) -> bool:
    """Return whether these functions compute a convolution of this geometry, given x or dy."""
    plain = geometry.kernel == (1, 1) and geometry.groups == 1 and geometry.pad == (0, 0)
    return plain and format_of(x) == torch.channels_last


def suits(x: torch.Tensor, geometry: Geometry) -> bool:
    """Return whether they are, with oneDNN, the fast way by rule.

    With a stride they are only for small images; picking pixels out of large ones costs more than it wins.
    """
    if not serves(x, geometry) or not onednn.serves(x):
        return False
    return geometry.stride == (1, 1) or x.shape[2] * x.shape[3] <= _FEW_PIXELS * math.prod(geometry.stride)


def visited_rows(x: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """Return the pixels that the filter visits as a matrix, (N H' W', C)."""
    return pixel_rows(visited(x, geometry))


def visited(x: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """Return the pixels that the filter visits; a view."""
    down, right = geometry.stride
    return x if geometry.stride == (1, 1) else x[:, :, ::down, ::right]
