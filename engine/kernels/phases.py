"""Filters that see one channel each (depthwise) and have a dilation: gradients as those of filters without one.

    dx[n, c, i]  = sum over q of  W[c, 0, q] * dy[n, c, i + pad - d q]
    dW[c, 0, q]  = sum over n, i of  dy[n, c, i] * x[n, c, i + d q - pad]

With a dilation d such a filter sees every d-th pixel, so the pixels fall into d phases along each axis that have
nothing to do with each other. Seen as images of their own they are walked over without a dilation. oneDNN has fast
kernels for that, and for gradients with a dilation a general one alone; forward it needs no help. Layers of MobileNet
and Xception behind a DeepLab are of this kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from mgcaffe.engine.kernels import onednn
from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.engine.kernels.geometry import Geometry

PHASES = "phases"
"""What the candidates are called."""

_FEWEST_CHANNELS = 16
_FEWEST_SUMS = 1 << 18


def serves(dy: torch.Tensor, channels: int, geometry: Geometry) -> bool:
    """Return whether the gradients may be computed so, on a CPU.

    The padding has to be a multiple of the dilation, or phases of x would not belong to one of dy each.

    Args:
        dy: (N, C, out...), of the type and in the format of x where there is one.
        channels: those of x.
        geometry: the filters' walk over x.
    """
    if geometry.rank != 2 or geometry.dilation == (1, 1) or geometry.stride != (1, 1) or geometry.kernel == (1, 1):
        return False
    if not 1 < geometry.groups == channels == dy.shape[1] or not onednn.serves(dy):
        return False
    divides = all(pad % dilation == 0 for pad, dilation in zip(geometry.pad, geometry.dilation, strict=True))
    return divides and format_of(dy) == torch.channels_last


def suits(dy: torch.Tensor, geometry: Geometry) -> bool:
    """Return whether that is the fast way by rule, where it serves: each phase has to be worth its copies.

    On an Intel Xeon (family 6, model 207) it took 0.20 to 0.71 of oneDNN's time in float32 where this holds
    (`benchmarks/depthwise.py`), and where it does not 1.0 to 1.45, with 3 channels or a dilation of 12 up to 4.2.
    """
    phases = math.prod(geometry.dilation)
    sums = dy.numel() * math.prod(geometry.kernel)
    return dy.shape[1] >= _FEWEST_CHANNELS and sums >= _FEWEST_SUMS * phases


def undilated(geometry: Geometry) -> Geometry:
    """Return the filters' walk over the pixels of one phase."""
    down, right = geometry.dilation
    return replace(geometry, pad=(geometry.pad[0] // down, geometry.pad[1] // right), dilation=(1, 1))


def whole(size: Sequence[int], geometry: Geometry) -> tuple[int, int]:
    """Return a height and a width up to the next multiples of the dilation, so that all phases have as many pixels."""
    rows, columns = (-(-pixels // step) * step for pixels, step in zip(size, geometry.dilation, strict=True))
    return rows, columns


def split(x: torch.Tensor, size: Sequence[int], geometry: Geometry) -> torch.Tensor:
    """Return the phases of x as images, (N d d, C, size / d), channels last.

    Args:
        x: (N, C, height, width).
        size: multiples of the dilation, of at least height and width; zeros fill it up.
        geometry: has the dilation.
    """
    (down, right), (rows, columns) = geometry.dilation, size
    shape = x.shape[0], down, right, rows // down, columns // right, x.shape[1]
    parts = torch.empty(shape, dtype=x.dtype, device=x.device)
    if tuple(x.shape[2:]) != tuple(size):
        parts.zero_()
    for part, seen in _pairs(parts, x):
        part.copy_(seen)
    return parts.flatten(0, 2).permute(0, 3, 1, 2)


def join(images: torch.Tensor, x: torch.Tensor, geometry: Geometry) -> None:
    """Write the phases that `split` made of x back into x; what lies beyond it is dropped."""
    down, right = geometry.dilation
    for part, seen in _pairs(images.permute(0, 2, 3, 1).unflatten(0, (-1, down, right)), x):
        seen.copy_(part)


def _pairs(parts: torch.Tensor, x: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield each phase of parts (N, d, d, height, width, C), as far as it lies in x (N, C, H, W), with its pixels."""
    down, right = parts.shape[1:3]
    for row in range(down):
        for column in range(right):
            seen = x[:, :, row::down, column::right].permute(0, 2, 3, 1)
            yield parts[:, row, column, : seen.shape[1], : seen.shape[2]], seen
