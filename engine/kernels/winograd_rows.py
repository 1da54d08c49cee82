"""Rows of images as Winograd's convolutions along the vertical axis see them: tiles, transforms, pieces of a batch.

Shapes: x (N, C, H, W) channels last; T tiles one below the other, each of n or m rows, m rows apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from mgcaffe.engine.kernels import unfolded
from mgcaffe.engine.kernels.winograd_matrices import Size

LONG_LINE = 2048
"""How many values a line (W C) has at least where tiles are transformed as they lie, instead of being copied before."""


class Tiling(NamedTuple):
    """One group's images cut into tiles."""

    size: Size
    width: int
    channels: int
    outputs: int
    out: tuple[int, ...]

    @property
    def tiles(self) -> int:
        """Tiles one below the other."""
        return -(-self.out[0] // self.size.outputs)

    @property
    def values(self) -> int:
        """The most that is copied of one image at a time: the tiles of x, and those before them or of y."""
        inputs = self.size.points * self.width * self.channels
        outputs = (self.size.points + self.size.outputs) * self.out[1] * self.outputs
        return self.tiles * (inputs + max(inputs, outputs))


def transformed_rows(x: torch.Tensor, matrix: torch.Tensor, tiling: Tiling, above: int) -> torch.Tensor:
    """Return `matrix` (n, rows) over the rows of all tiles, (n, N T W C); x is zero outside.

    Args:
        x: (N, C, H, W).
        matrix: for each row of a tile a column.
        tiling: says where tiles begin.
        above: how many rows before x the first tile does.
    """
    x = x.permute(0, 2, 3, 1)
    batch, height, width, channels = x.shape
    step, line, (points, rows) = tiling.size.outputs, width * channels, matrix.shape
    if line < LONG_LINE or not x.is_contiguous():
        return torch.mm(matrix, _tiles(x, tiling, rows, above))
    transformed = x.new_empty(points, batch, tiling.tiles, line)
    lines = x.view(batch, height, line)
    for tile in range(tiling.tiles):
        top = tile * step - above
        first, end = max(top, 0), min(top + rows, height)
        met = matrix[:, first - top : end - top].expand(batch, -1, -1)
        torch.bmm(met, lines[:, first:end], out=transformed[:, :, tile].transpose(0, 1))
    return transformed.view(points, -1)


def _tiles(x: torch.Tensor, tiling: Tiling, rows: int, above: int) -> torch.Tensor:
    """Return (rows, N T W C): the rows of all tiles of x, (N, H, W, C), zero outside; see `transformed_rows`."""
    batch, height, width, channels = x.shape
    step, line = tiling.size.outputs, width * channels
    high = tiling.tiles * step + rows - step
    padded = x.new_empty(batch, high, width, channels)
    padded[:, :above].zero_()
    padded[:, above : above + height] = x
    padded[:, above + height :].zero_()
    tiles = padded.as_strided((rows, batch, tiling.tiles, line), (line, high * line, step * line, 1))
    return tiles.reshape(rows, -1)


def as_high_images(tiles: torch.Tensor, width: int, channels: int) -> Sequence[torch.Tensor]:
    """Return tiles as one high image for each row: (1, C, N T, W), channels last."""
    return tiles.view(tiles.shape[0], 1, -1, width, channels).permute(0, 1, 4, 2, 3).unbind()


def pieces(batch: int, values: int, limit: int | None = None) -> Iterator[slice]:
    """Return even pieces of a batch, where one image copies so many values.

    Args:
        batch: how many images there are.
        values: what one copies.
        limit: what a piece copies at most, if that is more than one image; default: `MAX_COPY`.
    """
    most = max(1, (unfolded.MAX_COPY if limit is None else limit) // values)
    each = -(-batch // -(-batch // most))
    return (slice(first, first + each) for first in range(0, batch, each))
