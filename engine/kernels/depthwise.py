"""The gradient of filters that see one channel each (depthwise), by oneDNN's kernel for up to three columns.

    dW[c, 0, i, j] = sum over n, y, x of  dy[n, c, y, x] * x[n, c, s y + i - pad, s x + j - pad]

That kernel takes filters of at most three columns, over images of at least as many rows as the filter has; for others
oneDNN takes a general kernel, which is up to ten times as slow. So wider filters are cut into groups of two or three
columns, each computed from a copy of those columns of x that it sees, with the padding in it. On an Intel Xeon with
AVX-512 (family 6, model 207) that takes 0.27 to 0.76 of the time of oneDNN's for the whole filter in 11 shapes of
MobileNet's, EfficientNet's and ConvNeXt's kinds, in bf16 0.08 to 0.47 of it (`benchmarks/depthwise.py`).

The bias's gradient comes from the same call: 0.58 ms for both instead of 0.55 and 0.21 (3x3, 128 channels at 28x28),
with the rounding of the filters' gradient, 1e-6 to 5e-6 of the largest value instead of 2e-7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import onednn
from mgcaffe.engine.kernels.aten import convolution_backward
from mgcaffe.engine.kernels.formats import dense, format_of
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.precision import is_narrow, widened
from mgcaffe.engine.kernels.unfolded import add, some_images
from mgcaffe.engine.parameter import Parameter

COLUMNS = "columns"
"""What the candidate is called."""

_MOST_COLUMNS = 3
_FEWEST_CHANNELS = 8
_FEWEST_SUMS = 1 << 19
_SUMS_PER_COPY = 3
_SUMS_PER_COPY_IF_SLOW = 2


def serves(dy: torch.Tensor, x: torch.Tensor, geometry: Geometry) -> bool:
    """Return whether oneDNN computes the gradient, and may do it by columns; filters of one pixel it has no kernel for.

    Args:
        dy: (N, C, out...).
        x: (N, C, in...).
        geometry: the filters' walk over x.
    """
    if geometry.rank != 2 or not 1 < geometry.groups == x.shape[1] == dy.shape[1]:
        return False
    if geometry.dilation != (1, 1) or geometry.kernel == (1, 1):
        return False
    return format_of(x) == format_of(dy) == torch.channels_last and onednn.serves(x) and dy.numel() > 0


def suits(dy: torch.Tensor, x: torch.Tensor, geometry: Geometry) -> bool:
    """Return whether that is the fast way by rule, where it serves: the copies have to be small beside the sums.

    With one image of 28x28 and 72 channels, 5x5 with a stride of 2, it took 1.7 times as long as oneDNN's own, with 8
    images, 4x4 and a stride of 2 1.3 times, with 3 channels 1.3 to 1.6 times. In bf16, and where the image has fewer
    rows than the filter, oneDNN's own is slower still, but for large strides: 16x16 with a stride of 8 over 128x128
    took 5.7 times as long by columns.
    """
    if takes_whole_filter(x, geometry):
        return True
    sums, copied = dy.numel() * math.prod(geometry.kernel), x.numel() * len(_widths(geometry.kernel[1]))
    if is_narrow(x) or x.shape[2] < geometry.kernel[0]:
        return sums >= _SUMS_PER_COPY_IF_SLOW * copied
    return x.shape[1] >= _FEWEST_CHANNELS and sums >= max(_FEWEST_SUMS, _SUMS_PER_COPY * copied)


def takes_whole_filter(x: torch.Tensor, geometry: Geometry) -> bool:
    """Return whether oneDNN's kernel takes the whole filter at once, and x as it is."""
    return geometry.kernel[1] <= _MOST_COLUMNS and x.shape[2] >= geometry.kernel[0]


def add_backward_weight(
    total: torch.Tensor, beta: float, dy: torch.Tensor, x: torch.Tensor, geometry: Geometry, bias: Parameter | None
) -> None:
    """Total (C, 1, kernel...) becomes beta total + the filters' gradient; beta 0 replaces what it held.

    `bias`, if given, gets the sum of dy over all pixels added to its gradient.
    """
    if takes_whole_filter(x, geometry):
        _add(total, beta, dense(dy), dense(x), geometry, bias)
        return
    # In float32 also of operands of 16 bits, so that the sums are rounded once; oneDNN's kernel is as fast so.
    sums, added = (torch.empty(total.shape, dtype=torch.float32), 0.0) if is_narrow(x) else (total, beta)
    for some in some_images(x):
        _add_by_columns(sums, added, widened(dense(dy[some])), x[some], geometry, bias)
        added = 1.0
    if sums is not total:
        add(total, sums, beta)


def _add_by_columns(
    total: torch.Tensor, beta: float, dy: torch.Tensor, x: torch.Tensor, geometry: Geometry, bias: Parameter | None
) -> None:
    height, width = geometry.kernel
    first = 0
    for columns in _widths(width):
        seen = _seen(x, dy.shape[2:], first, columns, geometry)
        walk = Geometry((height, columns), geometry.stride, (0, 0), (1, 1), geometry.groups)
        _add(total[..., first : first + columns], beta, dy, seen, walk, bias)
        first, bias = first + columns, None


def _widths(columns: int) -> list[int]:
    """Return how many columns each group has: as few groups as there can be, and as equal."""
    groups = -(-columns // _MOST_COLUMNS)
    return [len(range(group, columns, groups)) for group in range(groups)]


def _seen(x: torch.Tensor, out: Sequence[int], first: int, columns: int, geometry: Geometry) -> torch.Tensor:
    """Return a copy, in float32, of what columns `first` and so on of the filters see of x and its padding.

    Rows are padded as well: oneDNN's kernel takes no image with fewer rows than the filter, nor all strides with a pad.

    Args:
        x: (N, C, height, width).
        out: the height and width of dy.
        first, columns: which columns.
        geometry: the whole filters' walk.
    """
    extents = (geometry.kernel[0], columns)
    height, width = (step * (size - 1) + each for step, size, each in zip(geometry.stride, out, extents, strict=True))
    top, left = geometry.pad[0], geometry.pad[1] - first
    inside = x[..., : max(0, height - top), max(0, -left) : max(0, width - left)]
    top, left = min(top, height), min(max(0, left), width)
    bottom, right = top + inside.shape[2], left + inside.shape[3]
    copy = torch.empty(x.shape[0], height, width, x.shape[1], dtype=torch.float32).permute(0, 3, 1, 2)
    copy[..., top:bottom, left:right].copy_(inside)
    for margin in (copy[..., :top, :], copy[..., bottom:, :], copy[..., :left], copy[..., right:]):
        margin.zero_()
    return copy


def _add(
    total: torch.Tensor, beta: float, dy: torch.Tensor, x: torch.Tensor, geometry: Geometry, bias: Parameter | None
) -> None:
    weight = torch.empty(total.shape, dtype=x.dtype)  # lends its shape only
    _, gradient, sums = convolution_backward(dy, x, weight, geometry, [False, True, bias is not None])
    add(total, gradient, beta)
    if bias is not None:
        bias.accumulate(sums)
