"""The weight gradient of a convolution over one channel (grey images): a matrix product over all windows.

Shapes: x (N, 1, H, W), dy (N, O, H', W') channels last, the gradient (O, 1, kernel...). oneDNN's own weight gradient
cannot use its vectors on one channel and takes about 1.4 times as long (LeNet's conv1, batch 64).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import onednn
from mgcaffe.engine.kernels.formats import format_of, pixel_rows
from mgcaffe.engine.kernels.geometry import Geometry

_MAX_COLUMNS = 1 << 22


def serves(dy: torch.Tensor, x: torch.Tensor, geometry: Geometry) -> bool:
    """Return whether `backward_weight` is the fast way; not where its columns would need too much memory."""
    if geometry.rank != 2 or x.shape[1] != 1 or format_of(dy) != torch.channels_last or not onednn.serves(x):
        return False
    return math.prod(geometry.kernel) * dy.numel() // dy.shape[1] <= _MAX_COLUMNS


def backward_weight(dy: torch.Tensor, x: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """Return the gradient: what each place of the filter saw, times dy."""
    vertical, horizontal = geometry.pad
    padded = torch.constant_pad_nd(x.contiguous(), [horizontal, horizontal, vertical, vertical]).contiguous()
    columns = _columns(padded, dy.shape[2:], geometry)
    return torch.mm(columns, pixel_rows(dy)).t().reshape(dy.shape[1], 1, *geometry.kernel)


def _columns(x: torch.Tensor, out: Sequence[int], geometry: Geometry) -> torch.Tensor:
    """Return the values under each place of the filter, as (kernel places, N H' W')."""
    batch, _, height, width = x.shape
    (down, right), (further_down, further_right) = geometry.stride, geometry.dilation
    shape = (*geometry.kernel, batch, *out)
    strides = (further_down * width, further_right, height * width, down * width, right)
    return x.view(-1).as_strided(shape, strides, x.storage_offset()).reshape(math.prod(geometry.kernel), -1)
