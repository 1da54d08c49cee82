"""The windows that a filter sees, copied side by side into a matrix, so that a convolution becomes one product.

Shapes: x (N, C, H, W), kernel (k, l), P = N H' W' places of the filter. The copy holds k l times as much as x, so
`serves` bounds it; `fold` is the adjoint of `windows_below`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.engine.kernels.geometry import Geometry

MAX_COPY = 1 << 22
"""How many values (16 MiB of float32) a candidate may copy, so that choosing it does not show in a net's memory.

Winograd's convolutions may take more where the batch does (`most_beside`).
"""

_MOST_BESIDE = 1 << 24


def most_beside(values: int) -> int:
    """Return how many values may be copied beside so many of the batch: `MAX_COPY`, or else as many, up to 64 MiB."""
    return max(MAX_COPY, min(values, _MOST_BESIDE))


def serves(x: torch.Tensor, channels: int, places: int, geometry: Geometry) -> bool:
    """Return whether the windows of so many places over so many channels fit; for an x (or dy) channels last."""
    if geometry.rank != 2 or geometry.groups != 1 or x.numel() == 0:
        return False
    return format_of(x) == torch.channels_last and channels * math.prod(geometry.kernel) * places <= MAX_COPY


def windows_below(x: torch.Tensor, out: Sequence[int], geometry: Geometry) -> torch.Tensor:
    """Return one row a place, (P, k l C): the windows of an x that is channels last."""
    return _windows_below(_pixels(x, geometry), out, geometry, range(geometry.kernel[0]))


def windows_by_row(x: torch.Tensor, out: Sequence[int], geometry: Geometry) -> Iterator[torch.Tensor]:
    """Yield for each row of the filter its part of `windows_below`, (P, l C)."""
    pixels = _pixels(x, geometry)
    for row in range(geometry.kernel[0]):
        yield _windows_below(pixels, out, geometry, range(row, row + 1))


def _pixels(x: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    """Return x with its padding, (N, H, W, C) without gaps."""
    return _padded(x, geometry).permute(0, 2, 3, 1).contiguous()


def _windows_below(pixels: torch.Tensor, out: Sequence[int], geometry: Geometry, rows: range) -> torch.Tensor:
    """Return what these rows of the filter see of `_pixels`, (P, rows l C)."""
    batch, height, width, channels = pixels.shape
    (down, right), (further_down, further_right) = geometry.stride, geometry.dilation
    pixel, line, image = channels, width * channels, height * width * channels
    shape = (batch, *out, len(rows), geometry.kernel[1], channels)
    strides = (image, down * line, right * pixel, further_down * line, further_right * pixel, 1)
    seen = pixels[:, rows.start * further_down :].as_strided(shape, strides).reshape(batch * math.prod(out), -1)
    return seen.contiguous()  # windows as wide as one image may still be a view, whose rows overlap: oneDNN refuses it


def row_windows(image: torch.Tensor, out: Sequence[int], geometry: Geometry) -> Iterator[torch.Tensor]:
    """Yield for each row of the filter what it meets in an image (C, H, W) that is channels last: (H' W', l C).

    Windows are copied along the horizontal axis alone, and each row of the filter sees a view of that copy. With a
    stride the lines that one row meets lie one behind the other.
    """
    above, before = geometry.pad
    padded = torch.constant_pad_nd(image.permute(1, 2, 0), [0, 0, before, before, above, above]).contiguous()
    height, width, channels = padded.shape
    (down, right), (further_down, further_right) = geometry.stride, geometry.dilation
    line = width * channels
    lines = padded.new_empty(down, -(-height // down), out[1], geometry.kernel[1], channels)
    for first in range(min(down, height)):
        count = -(-(height - first) // down)
        shape, strides = (count, *lines.shape[2:]), (down * line, right * channels, further_right * channels, 1)
        lines[first, :count].copy_(padded[first:].as_strided(shape, strides))
    for row in range(0, geometry.kernel[0] * further_down, further_down):
        yield lines[row % down, row // down :][: out[0]].flatten(2).flatten(0, 1)


def windows_across(x: torch.Tensor, out: Sequence[int], geometry: Geometry) -> torch.Tensor:
    """Return one column a place, (C k l, P): the windows of an x in the ordinary format."""
    padded = _padded(x.contiguous(), geometry).contiguous()
    batch, channels, height, width = padded.shape
    (down, right), (further_down, further_right) = geometry.stride, geometry.dilation
    shape = (channels, *geometry.kernel, batch, *out)
    plane = height * width
    strides = (plane, further_down * width, further_right, channels * plane, down * width, right)
    return padded.as_strided(shape, strides).reshape(channels * math.prod(geometry.kernel), -1)


def fold(rows: torch.Tensor, shape: Sequence[int], out: Sequence[int], geometry: Geometry) -> torch.Tensor:
    """Return x of this shape, channels last: each pixel is the sum of where it stands in rows (P, k l C)."""
    batch, channels, height, width = shape
    (above, before), (down, right) = geometry.pad, geometry.stride
    parts = rows.view(batch, *out, *geometry.kernel, channels)
    padded = rows.new_zeros(batch, height + 2 * above, width + 2 * before, channels)
    for i in range(geometry.kernel[0]):
        top = i * geometry.dilation[0]
        lines = slice(top, top + down * (out[0] - 1) + 1, down)
        for j in range(geometry.kernel[1]):
            left = j * geometry.dilation[1]
            padded[:, lines, left : left + right * (out[1] - 1) + 1 : right] += parts[:, :, :, i, j]
    inside = padded[:, above : above + height, before : before + width]
    return inside.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)


def filter_rows(weight: torch.Tensor) -> torch.Tensor:
    """Weight (O, C, k, l) as (O, k l C), the order of `windows_below`."""
    return weight.permute(0, 2, 3, 1).reshape(weight.shape[0], -1)


def some_images(x: torch.Tensor) -> Iterator[slice]:
    """Yield slices of a batch x (N, ...), of at most `MAX_COPY` values or of one image."""
    images = max(1, MAX_COPY // max(1, x.numel() // max(1, len(x))))
    for first in range(0, len(x), images):
        yield slice(first, first + images)


def add_filter_rows(total: torch.Tensor, rows: torch.Tensor, beta: float) -> None:
    """Set total (O, C, k, l) to beta total + rows (O, k l C), in place."""
    outputs, channels, *kernel = total.shape
    add(total, rows.view(outputs, *kernel, channels).permute(0, 3, 1, 2), beta)


def add(total: torch.Tensor, gradient: torch.Tensor, beta: float) -> None:
    """Set total to beta total + gradient, in place; with beta 0 what `total` held does not matter."""
    if beta:
        total.add_(gradient)
    else:
        total.copy_(gradient)


def _padded(x: torch.Tensor, geometry: Geometry) -> torch.Tensor:
    vertical, horizontal = geometry.pad
    return torch.constant_pad_nd(x, [horizontal, horizontal, vertical, vertical]) if any(geometry.pad) else x
