"""Convolution with a filter of one pixel, channels last: matrix products over the pixels.

Shapes: x (N, C, H, W) and y (N, O, H / stride, W / stride), both channels last; weight (O, C, 1, 1). A stride
leaves pixels out before the product, and puts zeros in their places in the gradient.

With fewer than 16 images and one thread PyTorch hands such filters to its BLAS, else to oneDNN. To a filter of one
pixel it makes no difference which image a pixel belongs to; so pixels can be seen as many small images (`as_images`).
"""

from __future__ import annotations

import functools
import math

import torch

from mgcaffe.engine.kernels import onednn
from mgcaffe.engine.kernels.formats import format_of, pixel_rows
from mgcaffe.engine.kernels.geometry import Geometry

_FEW_PIXELS = 256
FEWEST_IMAGES = 16
"""With fewer PyTorch hands filters of one pixel to its BLAS, where one thread computes."""
FEWEST_PIXELS, _BEST_PIXELS, _MOST_PIXELS = 64, 256, 1024
PLAIN = Geometry((1, 1), (1, 1), (0, 0), (1, 1))
"""The walk of a filter of one pixel over such small images."""


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


def count_images(pixels: int) -> int:
    """Return as how many small images `as_images` should see so many pixels.

    Each has as near to 256 pixels as can be, and from 64 to 1024; 0 where that divides the pixels nowhere.
    """
    return _count_images(pixels, FEWEST_PIXELS)


@functools.lru_cache(maxsize=1024)
def _count_images(pixels: int, fewest: int) -> int:
    most = min(_MOST_PIXELS, pixels // FEWEST_IMAGES)
    best = min(_BEST_PIXELS, most)
    for distance in range(_MOST_PIXELS):
        for size in (best - distance, best + distance):
            if fewest <= size <= most and pixels % size == 0:
                return pixels // size
    return 0


def as_images(rows: torch.Tensor, images: int) -> torch.Tensor:
    """Return rows (P, C) as images of one column, (images, C, P / images, 1), channels last; a view."""
    return rows.view(images, -1, 1, rows.shape[1]).permute(0, 3, 1, 2)
