"""Images cut into a grid of square tiles, as Winograd's convolutions along both axes see them.

Shapes: x (N, C, H, W) channels last, y and dy (N, O, H', W'), T = ceil(H' / m) ceil(W' / m) tiles; tiles of x are n x n
and overlap, those of y and dy are m x m.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from mgcaffe.engine.kernels import winograd_rows
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.winograd_matrices import Size, matrices

CACHED = 1 << 21
"""How many values (8 MiB of float32) a piece of the images copies, where one image and the filters have fewer."""


class Place(NamedTuple):
    """A piece of the images, and a group."""

    images: slice
    group: int

    def of(self, x: torch.Tensor, groups: int) -> torch.Tensor:
        """Return the part of x, (N, C, H, W), that lies there; a view."""
        return x[self.images].chunk(groups, 1)[self.group]


class Tiling(NamedTuple):
    """One group's images cut into tiles."""

    size: Size
    channels: int
    outputs: int
    out: tuple[int, ...]

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

    def seen_values(self, batch: int) -> int:
        """Return how many values the transformed tiles of so many images have."""
        return batch * self.tiles[0] * self.tiles[1] * self.size.points**2 * self.channels

    def places(self, batch: int, groups: int) -> list[Place]:
        """Return each piece of the images with each group; a piece reads all filters, and is larger where these are."""
        filters = self.size.points**2 * self.channels * self.outputs
        pieces = winograd_rows.pieces(batch, self.values, max(CACHED, filters))
        return [Place(images, group) for images in pieces for group in range(groups)]


def set_outputs(y: torch.Tensor, products: torch.Tensor, tiling: Tiling, relu: bool) -> None:
    """Set y to what its transformed tiles, (n n, N T, O), give: the columns of one place in all tiles at a time."""
    m, n = tiling.size.outputs, tiling.size.points
    matrix, (down, right) = matrices(tiling.size, y.dtype)[2], tiling.tiles
    lines = products.view(n, -1, right * tiling.outputs).transpose(0, 1)
    rows = torch.bmm(matrix.expand(lines.shape[0], -1, -1), lines)
    columns = torch.mm(matrix, rows.view(n, -1)).view(m, y.shape[0], down * m, right, tiling.outputs)
    for place, column in enumerate(columns.permute(0, 1, 4, 2, 3)):
        part = y[:, :, :, place::m]
        values = column[:, :, : part.shape[2], : part.shape[3]]
        if relu:
            torch.clamp_min(values, 0, out=part)
        else:
            part.copy_(values)


def fold(x: torch.Tensor, tiles: torch.Tensor, tiling: Tiling, geometry: Geometry) -> None:
    """Set x to the sums of overlapping tiles (n n, N T, C), which begin m rows and columns apart.

    A tile is cut into blocks of m x m values, the last ones smaller; blocks of one place in their tiles do not overlap.
    """
    (batch, channels, height, width), (down, right) = x.shape, tiling.tiles
    m, n = tiling.size.outputs, tiling.size.points
    by_place = tiles.view(n, n, batch, down, right, channels).permute(2, 3, 0, 4, 1, 5)
    places = range(-(-n // m))
    sums = x.new_zeros(batch, down + places[-1], m, right + places[-1], m, channels)
    for i in places:
        for j in places:
            block = by_place[:, :, i * m : (i + 1) * m, :, j * m : (j + 1) * m]
            sums[:, i : i + down, : block.shape[2], j : j + right, : block.shape[4]] += block
    (above, before), whole = geometry.pad, sums.flatten(3, 4).flatten(1, 2)
    x.copy_(whole[:, above : above + height, before : before + width].permute(0, 3, 1, 2))


def seen_tiles(x: torch.Tensor, tiling: Tiling, geometry: Geometry) -> torch.Tensor:
    """Return the transformed tiles of x: (n n, N T, C)."""
    (above, before), (height, width) = geometry.pad, tiling.seen
    beyond = [0, 0, before, width - x.shape[3] - before, above, height - x.shape[2] - above]
    rows = x.permute(0, 2, 3, 1)
    padded = (torch.constant_pad_nd(rows, beyond) if any(beyond) else rows).contiguous()
    m, n, channels = tiling.size.outputs, tiling.size.points, tiling.channels
    line, image = width * channels, height * width * channels
    shape = (n, n, x.shape[0], *tiling.tiles, channels)
    tiles = padded.as_strided(shape, (line, channels, image, m * line, m * channels, 1)).reshape(n * n, -1, channels)
    return transformed(matrices(tiling.size, x.dtype)[0], tiles)


def given_tiles(dy: torch.Tensor, tiling: Tiling) -> torch.Tensor:
    """Return the transformed tiles of dy: (n n, N T, O)."""
    m, (down, right), outputs = tiling.size.outputs, tiling.tiles, tiling.outputs
    beyond = [0, 0, 0, right * m - tiling.out[1], 0, down * m - tiling.out[0]]
    rows = dy.permute(0, 2, 3, 1)
    padded = torch.constant_pad_nd(rows, beyond) if any(beyond) else rows
    tiles = padded.reshape(-1, down, m, right, m, outputs).permute(2, 4, 0, 1, 3, 5).reshape(m * m, -1, outputs)
    return transformed(matrices(tiling.size, dy.dtype)[2].t(), tiles)


def transformed(matrix: torch.Tensor, tiles: torch.Tensor) -> torch.Tensor:
    """Return `matrix` (k, l) applied along both axes of tiles (l l, P, C): (k k, P, C)."""
    k, n = matrix.shape
    down = torch.mm(matrix, tiles.reshape(n, -1)).view(k, n, -1)
    return torch.bmm(matrix.expand(k, -1, -1), down).view(k * k, *tiles.shape[1:])
