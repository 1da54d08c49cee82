"""Convolutions with fewer multiplications, by Winograd's filtering along both axes, in all three directions.

F(m x m, r x r) makes tiles of m x m values of output with square filters of r rows from tiles of n x n values of
input, n = m + r - 1, by n n multiplications instead of m m r r, so that F(4 x 4, 5 x 5) has 64 instead of 400:

    y = A^T [(G w G^T) * (B^T x B)] A,    dx = B [(G w G^T) * (A dy A^T)] B^T,    dw = G^T [(A dy A^T) * (B^T x B)] G

Each transform is one product by the Kronecker product of a matrix of `winograd.py` with itself, and what stands between
them n n products over the channels. They run at half a convolution's speed, so this is for small images with few
channels that fill no vectors, which PyTorch's convolutions pad.

Shapes: x (N, C, H, W) channels last, weight (O, C, r, r), y and dy (N, O, H', W'), T = ceil(H' / m) ceil(W' / m) tiles.
Images are computed in pieces that stay in the second-level cache, or one by one; of filters, and of an image, at most
`unfolded.MAX_COPY` values are copied.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch

from mgcaffe.engine.kernels import unfolded, winograd
from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.winograd import Size

SIZE = Size(4, 5)
NAME = f"winograd_tiles_f{SIZE.outputs}{SIZE.rows}"
"""The candidates' name."""

CACHED = 1 << 18
"""How many values (1 MiB of float32) a piece of the images copies, where one image does not copy more."""


class _Tiling(NamedTuple):
    """Images cut into tiles."""

    size: Size
    channels: int
    outputs: int
    out: tuple[int, int]

    @property
    def tiles(self) -> tuple[int, int]:
        """Tiles one below the other, and side by side."""
        return -(-self.out[0] // self.size.outputs), -(-self.out[1] // self.size.outputs)

    @property
    def seen(self) -> tuple[int, int]:
        """The spatial size of what the tiles of an image see of it, with all that lies outside."""
        m, n = self.size.outputs, self.size.points
        return (self.tiles[0] - 1) * m + n, (self.tiles[1] - 1) * m + n

    @property
    def values(self) -> int:
        """The most that is copied of one image at a time: its tiles before and after a step."""
        points = self.size.points**2 * self.tiles[0] * self.tiles[1]
        return points * (self.channels + max(self.channels, self.outputs))


def serves(x: torch.Tensor, filters: Sequence[int], out: Sequence[int], geometry: Geometry, size: Size = SIZE) -> bool:
    """Return whether this x (or dy) can be convolved so.

    Args:
        x: (N, C, H, W); it has to be channels last, on a CPU.
        filters: the shape of the filters.
        out: the spatial size of y.
        geometry: what has stride, dilation or groups is not served.
        size: that of a tile.
    """
    square = geometry.kernel == (size.rows, size.rows) and geometry.groups == 1
    if not square or {*geometry.stride, *geometry.dilation} != {1}:
        return False
    if not x.is_cpu or x.dtype not in winograd.TYPES or x.numel() == 0 or format_of(x) != torch.channels_last:
        return False
    tiling = _Tiling(size, filters[1], filters[0], (out[0], out[1]))
    return max(tiling.values, filters[0] * filters[1] * size.points**2) <= unfolded.MAX_COPY


def forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    geometry: Geometry,
    size: Size = SIZE,
    relu: bool = False,
) -> torch.Tensor:
    """Return y = x * weight + bias, channels last, and with `relu` max(y, 0)."""
    outputs, channels = weight.shape[:2]
    rows, columns = geometry.output_size(x.shape[2:])
    tiling = _Tiling(size, channels, outputs, (rows, columns))
    m, (down, right) = size.outputs, tiling.tiles
    _, _, back = _matrices(size, x.dtype)
    filters = _filters(weight, size).transpose(1, 2)
    y = x.new_empty(x.shape[0], down * m, right * m, outputs)
    for images in winograd.pieces(x.shape[0], tiling.values, CACHED):
        products = torch.bmm(_seen(x[images], tiling, geometry), filters)
        if bias is not None:
            # What is added at the point 1 of both axes comes to all values of y alike.
            products[winograd.POINT_ONE * (size.points + 1)] += bias
        tiles = torch.mm(back, products.view(size.points**2, -1)).view(m, m, -1, down, right, outputs)
        y[images].view(-1, down, m, right, m, outputs).copy_(tiles.permute(2, 3, 0, 4, 1, 5))
    y = y[:, :rows, :columns].permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
    return y.clamp_(min=0) if relu else y


def backward_data(
    dy: torch.Tensor, weight: torch.Tensor, input_size: Sequence[int], geometry: Geometry, size: Size = SIZE
) -> torch.Tensor:
    """Return dx, channels last, for an input of this spatial size."""
    outputs, channels = weight.shape[:2]
    tiling = _Tiling(size, channels, outputs, (dy.shape[2], dy.shape[3]))
    m, n, (down, right) = size.outputs, size.points, tiling.tiles
    back, _, _ = _matrices(size, dy.dtype)
    filters = _filters(weight, size)
    dx = dy.new_zeros(dy.shape[0], *tiling.seen, channels)
    for images in winograd.pieces(dy.shape[0], tiling.values, CACHED):
        products = torch.bmm(_given(dy[images], tiling), filters)
        tiles = torch.mm(back.t(), products.view(n * n, -1)).view(n, n, -1, down, right, channels)
        for i in range(down):
            for j in range(right):
                dx[images, i * m : i * m + n, j * m : j * m + n] += tiles[:, :, :, i, j].permute(2, 0, 1, 3)
    (above, before), (height, width) = geometry.pad, input_size
    inside = dx[:, above : above + height, before : before + width]
    return inside.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)


def backward_weight(dy: torch.Tensor, x: torch.Tensor, geometry: Geometry, size: Size = SIZE) -> torch.Tensor:
    """Return the gradient of the filters as a view (O, C, r, r)."""
    channels, outputs = x.shape[1], dy.shape[1]
    tiling = _Tiling(size, channels, outputs, (dy.shape[2], dy.shape[3]))
    gradient = x.new_zeros(size.points**2, channels, outputs)
    for images in winograd.pieces(x.shape[0], tiling.values, CACHED):
        seen = _seen(x[images], tiling, geometry)
        gradient.baddbmm_(seen.transpose(1, 2), _given(dy[images], tiling))
    _, filters, _ = _matrices(size, x.dtype)
    rows = torch.mm(filters.t(), gradient.view(size.points**2, -1))
    return rows.view(size.rows, size.rows, channels, outputs).permute(3, 2, 0, 1)


def _seen(x: torch.Tensor, tiling: _Tiling, geometry: Geometry) -> torch.Tensor:
    """Return the transformed tiles of x: (n n, N T, C)."""
    (above, before), (height, width) = geometry.pad, tiling.seen
    beyond = [0, 0, before, width - x.shape[3] - before, above, height - x.shape[2] - above]
    rows = x.permute(0, 2, 3, 1)
    padded = (torch.constant_pad_nd(rows, beyond) if any(beyond) else rows).contiguous()
    m, n, channels = tiling.size.outputs, tiling.size.points, tiling.channels
    line, image = width * channels, height * width * channels
    shape = (n, n, x.shape[0], *tiling.tiles, channels)
    tiles = padded.as_strided(shape, (line, channels, image, m * line, m * channels, 1)).reshape(n * n, -1)
    return torch.mm(_matrices(tiling.size, x.dtype)[0], tiles).view(n * n, -1, channels)


def _given(dy: torch.Tensor, tiling: _Tiling) -> torch.Tensor:
    """Return the transformed tiles of dy: (n n, N T, O)."""
    m, (down, right), outputs = tiling.size.outputs, tiling.tiles, tiling.outputs
    beyond = [0, 0, 0, right * m - tiling.out[1], 0, down * m - tiling.out[0]]
    rows = dy.permute(0, 2, 3, 1)
    padded = torch.constant_pad_nd(rows, beyond) if any(beyond) else rows
    tiles = padded.reshape(-1, down, m, right, m, outputs).permute(2, 4, 0, 1, 3, 5).reshape(m * m, -1)
    return torch.mm(_matrices(tiling.size, dy.dtype)[2].t(), tiles).view(tiling.size.points**2, -1, outputs)


def _filters(weight: torch.Tensor, size: Size) -> torch.Tensor:
    """Return the transformed filters: (n n, O, C)."""
    outputs, channels = weight.shape[:2]
    rows = weight.reshape(outputs * channels, -1)
    return torch.mm(_matrices(size, weight.dtype)[1], rows.t()).view(-1, outputs, channels)


@functools.cache
def _matrices(size: Size, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the matrices of `winograd.py` for both axes: (n n, n n), (n n, r r) and (m m, n n)."""
    inputs, filters, outputs = (torch.kron(each, each) for each in winograd.matrices(size, dtype))
    return inputs, filters, outputs
