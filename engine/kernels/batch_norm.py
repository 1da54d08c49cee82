"""Batch normalisation, alone and with a scale, a bias and a ReLU folded in.

Shapes: x, y, dy and dx (N, C, ...); weight, bias, mean and inverse_std (C). `inverse_std` is
1 / sqrt(variance + eps) with the biased variance. Where x is of 16 bits so are y, dy and dx, and all that belongs to a
channel is of float32.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from mgcaffe.engine.kernels.elementwise import relu_
from mgcaffe.engine.kernels.formats import pixel_rows
from mgcaffe.engine.kernels.precision import is_narrow

_PIECE = 1 << 18
MANY_CHANNELS = 64
"""How many channels are worth vectors of their own."""
LARGE = 1 << 17
"""How many values are worth pieces."""


class Statistics(NamedTuple):
    """What a training pass over a batch finds out about each channel, each of shape (C).

    Attributes:
        values: how many there are a channel; with none there is nothing to be found out, and the rest is zero.
    """

    mean: torch.Tensor
    inverse_std: torch.Tensor
    unbiased_variance: torch.Tensor
    values: int


def forward(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
    relu: bool = False,
) -> tuple[torch.Tensor, Statistics]:
    """y = weight (x - mean) / sqrt(variance + eps) + bias, over the batch's own statistics; then max(y, 0)."""
    channels = x.shape[1]
    of_channel = torch.zeros(channels, dtype=torch.float32 if is_narrow(x) else x.dtype, device=x.device)
    running_mean, running_variance = of_channel, of_channel.clone()
    count = x.numel() // max(1, channels)
    if not count:
        return torch.empty_like(x), Statistics(running_mean, of_channel.clone(), running_variance, 0)
    # With momentum 1 the running statistics become those of this batch, the variance unbiased.
    y, mean, inverse_std = torch.native_batch_norm(x, weight, bias, running_mean, running_variance, True, 1.0, eps)
    if count == 1:
        running_variance.zero_()
    return (relu_(y) if relu else y), Statistics(mean, inverse_std, running_variance, count)


def suits_pieces(x: torch.Tensor) -> bool:
    """Return whether `normalize` runs over x in pieces that stay in a core's cache from one operation to the next."""
    rows = x.is_cpu and not is_narrow(x) and x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return rows and x.shape[1] >= MANY_CHANNELS and x.numel() >= LARGE


def normalize(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    inverse_std: torch.Tensor,
    relu: bool = False,
) -> torch.Tensor:
    """Return what `forward` gives, from the statistics that it found, to rounding; x of float32 or float64."""
    factor = inverse_std if weight is None else weight * inverse_std
    shift = -mean * factor if bias is None else bias - mean * factor
    if not suits_pieces(x):
        y = torch.addcmul(channel_view(shift, x), x, channel_view(factor, x))
        return y.clamp_(min=0) if relu else y
    y = torch.empty_like(x)
    for values, piece in zip(_pieces(x), _pieces(y), strict=True):
        torch.addcmul(shift, values, factor, out=piece)
        if relu:
            piece.clamp_(min=0)
    return y


def _pieces(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return a tensor that `suits_pieces`, as matrices (some pixels, C)."""
    pieces: tuple[torch.Tensor, ...] = pixel_rows(x).split(max(1, _PIECE // x.shape[1]))
    return pieces


def backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    mean: torch.Tensor,
    inverse_std: torch.Tensor,
    wanted: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """dx, dweight and dbias of a `forward` without `relu`, None where `wanted` is False.

    Args:
        dy: the gradient of y.
        x: what `forward` was given.
        weight: what `forward` was given, or None for ones.
        mean: as `forward` found it.
        inverse_std: as `forward` found it.
        wanted: which of the three gradients to compute.
    """
    gradients: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    if x.numel():
        gradients = torch.ops.aten.native_batch_norm_backward(
            dy, x, weight, None, None, mean, inverse_std, True, 0.0, list(wanted)
        )
    else:
        gradients = torch.empty_like(x), torch.zeros_like(mean), torch.zeros_like(mean)
    dx, dweight, dbias = (part if want else None for part, want in zip(gradients, wanted, strict=True))
    return dx, dweight, dbias


def backward_from_top(dy: torch.Tensor, y: torch.Tensor, inverse_std: torch.Tensor) -> torch.Tensor:
    """dx of a `forward` without weight and bias, from its result alone.

    dx = (dy - mean(dy) - mean(dy y) y) inverse_std: the gradient of a normalisation of y, whose mean is 0 and
    whose deviation is taken for 1, with inverse_std as weight.
    """
    zeros, ones = torch.zeros_like(inverse_std), torch.ones_like(inverse_std)
    dx = backward(dy, y, inverse_std, zeros, ones, (True, False, False))[0]
    assert dx is not None
    return dx


def channel_view(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return values (C) with axes added so that they broadcast over x."""
    return values.view(-1, *[1] * (x.dim() - 2))
