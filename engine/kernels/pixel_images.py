"""Pixels seen as many small images, for which PyTorch computes filters of one pixel by oneDNN.

With fewer than 16 images and one thread it hands such filters to its BLAS instead. To a filter of one pixel it makes no
difference which image a pixel belongs to.
"""

from __future__ import annotations

import functools
import math

import torch

from mgcaffe.engine.kernels.geometry import Geometry

GEOMETRY = Geometry((1, 1), (1, 1), (0, 0), (1, 1))
"""A filter's walk over such images."""
_FEW_IMAGES = 16
_BEST_PIXELS = 256


@functools.cache
def count(pixels: int) -> int:
    """Return as how many images to see so many pixels, so that each has about 256; 0 where that cannot be divided."""
    counts = [images for images in range(_FEW_IMAGES, pixels + 1) if pixels % images == 0]
    return min(counts, key=lambda images: abs(math.log(pixels / images / _BEST_PIXELS)), default=0)


def seen(rows: torch.Tensor, images: int) -> torch.Tensor:
    """Return rows (P, C) as images of one column, (images, C, P / images, 1), channels last; a view."""
    return rows.view(images, -1, 1, rows.shape[1]).permute(0, 3, 1, 2)
