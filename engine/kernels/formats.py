"""Memory formats: which one a tensor has, and which one suits a net."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from mgcaffe.engine.kernels.precision import FLOAT32, Precision


def format_of(x: torch.Tensor) -> torch.memory_format:
    """Return the format that a result computed from x should have; also for views with gaps."""
    # With one channel only the strides tell the formats apart, with one pixel nothing does.
    if x.dim() == 4 and x.stride(1) == 1 and x.shape[2] * x.shape[3] > 1:
        return torch.channels_last
    return torch.contiguous_format


def dense(x: torch.Tensor) -> torch.Tensor:
    """x itself if it has no gaps in its format, else a copy without them."""
    return x.contiguous(memory_format=format_of(x))


def converted(x: torch.Tensor) -> torch.Tensor:
    """Return x (N, C, H, W) without gaps in the format that it does not have."""
    other = torch.contiguous_format if format_of(x) == torch.channels_last else torch.channels_last
    return x.contiguous(memory_format=other)


def pixel_rows(x: torch.Tensor) -> torch.Tensor:
    """x (N, C, H, W) as a matrix (N H W, C); a view if x is channels last."""
    return x.permute(0, 2, 3, 1).reshape(-1, x.shape[1])


def from_pixel_rows(rows: torch.Tensor, batch: int, height: int, width: int) -> torch.Tensor:
    """Return the inverse of `pixel_rows`: a channels-last view."""
    return rows.view(batch, height, width, rows.shape[1]).permute(0, 3, 1, 2)


def preferred_memory_format(
    layer_types: Iterable[str], device: torch.device, dtype: torch.dtype, precision: Precision
) -> torch.memory_format:
    """Return the format for a net's four-dimensional blobs.

    On a CPU channels last wins for every net with filters or windows: maximum pooling and batch normalisation
    are vectorised over the channels only, and a filter of one pixel becomes a matrix product without a copy. On
    GPUs it is what the units for products in 16 bits and TF32 read, and cuDNN would convert each operand to it; for
    float32, and for nets without such layers, the ordinary format does.
    """
    windowed = {"Convolution", "Deconvolution", "Pooling", "BatchNorm"}
    suits_device = device.type == "cpu" or precision != FLOAT32
    if suits_device and dtype == torch.float32 and windowed.intersection(layer_types):
        return torch.channels_last
    return torch.contiguous_format
