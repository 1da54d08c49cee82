"""Stochastic pooling over two spatial axes, with the windows and the arithmetic of Caffe's GPU code.

    training:  the first pixel x_k of the window, in row order, with x_1 + ... + x_k >= u (x_1 + ... + x_K)
    testing:   (x_1^2 + ... + x_K^2) / (x_1 + ... + x_K), or 0 where that sum is not above 0

u is uniform in (0, 1], so a pixel is drawn with a probability proportional to its value, and a pixel of value 0 never,
unless its whole window is 0: then it is the first. (Caffe: pooling_layer.cu; Zeiler and Fergus 2013.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.engine.kernels.pooling import Window


def sampled_forward(x: torch.Tensor, window: Window, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one pixel of every window, drawn at random.

    Where negative values keep every partial sum below its mark, Caffe leaves the top undefined; here it is the first
    pixel. A window whose sum is NaN gives NaN.

    Args:
        x: (N, C, H, W).
        window: without pad.
        generator: of x's device.

    Returns:
        The top (N, C, P, Q), and for `sampled_backward` the chosen pixel's number within its window, one each.
    """
    values = _columns(x, window)
    sums = values.cumsum(2)
    total = sums[:, :, -1]
    uniform = torch.empty_like(total, memory_format=torch.contiguous_format).uniform_(generator=generator)
    reached = sums >= ((1 - uniform) * total).unsqueeze(2)
    chosen = reached.to(torch.uint8).argmax(2)
    y = values.gather(2, chosen.unsqueeze(2)).squeeze(2)
    return _as_image(torch.where(total.isnan(), total, y), x, window), chosen


def sampled_backward(
    dy: torch.Tensor, chosen: torch.Tensor, input_shape: Sequence[int], window: Window
) -> torch.Tensor:
    """Return the gradient of the input: each window's gradient goes to the pixel that was drawn."""
    number = torch.arange(window.kernel[0] * window.kernel[1], device=dy.device)
    picked = chosen.unsqueeze(2) == number.unsqueeze(1)
    return _spread(dy, picked * dy.flatten(2).unsqueeze(2), input_shape, window)


def weighted_forward(x: torch.Tensor, window: Window) -> torch.Tensor:
    """Return every window's mean, each pixel weighted by its own value."""
    values = _columns(x, window)
    return _as_image(values.square().sum(2) * _inverse_totals(values), x, window)


def weighted_backward(dy: torch.Tensor, x: torch.Tensor, window: Window) -> torch.Tensor:
    """Return the gradient of the input: dx = dy (2 x - y) / (sum of the window's x), added up over windows."""
    values = _columns(x, window)
    inverse = _inverse_totals(values)
    y = values.square().sum(2) * inverse
    share = (2 * values - y.unsqueeze(2)) * (inverse * dy.flatten(2)).unsqueeze(2)
    return _spread(dy, share, x.shape, window)


def _inverse_totals(values: torch.Tensor) -> torch.Tensor:
    """1 / the sum of each window, 0 where that is not above 0."""
    total = values.sum(2)
    return torch.where(total > 0, 1 / total, 0)


def _columns(x: torch.Tensor, window: Window) -> torch.Tensor:
    """Return the pixels of all windows (N, C, kernel rows x columns, P Q); those outside the image are 0."""
    padded = torch.constant_pad_nd(x, window.margins(x.shape[2:]))
    columns = torch.ops.aten.im2col(padded.contiguous(), window.kernel, [1, 1], [0, 0], window.stride)
    pixels: torch.Tensor = columns.unflatten(1, (x.shape[1], -1))
    return pixels


def _as_image(y: torch.Tensor, x: torch.Tensor, window: Window) -> torch.Tensor:
    """y (N, C, P Q) as (N, C, P, Q), in the memory format of x."""
    image: torch.Tensor = y.unflatten(2, window.output_size(x.shape[2:]))
    return image.contiguous(memory_format=format_of(x))


def _spread(dy: torch.Tensor, columns: torch.Tensor, input_shape: Sequence[int], window: Window) -> torch.Tensor:
    """Return the adjoint of `_columns`; in the memory format of dy."""
    left, right, above, below = window.margins(input_shape[2:])
    size = [input_shape[2] + above + below, input_shape[3] + left + right]
    padded = torch.ops.aten.col2im(columns.flatten(1, 2), size, window.kernel, [1, 1], [0, 0], window.stride)
    return torch.constant_pad_nd(padded, [-left, -right, -above, -below]).contiguous(memory_format=format_of(dy))
