"""Convolutions with fewer multiplications, by Winograd's filtering along both axes, in all three directions.

F(m x m, r x r) makes tiles of m x m values of output with square filters of r rows from tiles of n x n values of
input, n = m + r - 1, by n n multiplications instead of m m r r: F(2 x 2, 3 x 3) takes 16 instead of 36, F(4 x 4, 3 x 3)
36 instead of 144, and F(4 x 4, 5 x 5) 64 instead of 400:

    y = A^T [(G w G^T) * (B^T x B)] A,    dw = G^T [(A dy A^T) * (B^T x B)] G

with the matrices of `winograd_matrices.py`. What stands between the transforms are n n products over the channels. The
gradient for x is the adjoint, the sum of B [(G w G^T) * (A dy A^T)] B^T over tiles, which overlap as those of x do.
Sums over tiles round more than all else. With 5x5 filters they are made in parts of 8 to 64 tiles where such a number
divides that of the tiles, which leaves half of the rounding.

Shapes: x (N, C, H, W) channels last, weight (O, C / groups, r, r), y and dy (N, O, H', W'), T = ceil(H' / m)
ceil(W' / m) tiles. Groups are computed one by one, and images in pieces that stay in a cache, or one by one; of an
image, of filters and of parts of sums at most `unfolded.MAX_COPY` values each are there at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from mgcaffe.engine.kernels import unfolded, winograd, winograd_rows
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.winograd_matrices import POINT_ONE, Size, matrices

SIZES = (Size(2, 3), Size(4, 3), Size(4, 5))
"""Those worth measuring."""

CACHED = 1 << 21
"""How many values (8 MiB of float32) a piece of the images copies, where one image and the filters have fewer."""

KEPT = 1 << 19
"""How many values of transformed tiles a forward pass keeps at most (2 MiB of float32)."""

_MOST_POINTS_OF_ONE_SUM, _TILES_OF_A_SUM = 6, range(64, 7, -1)


class _Tiling(NamedTuple):
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

    def pieces(self, batch: int) -> Iterator[slice]:
        """Return pieces of the images; each reads all filters, so that it is larger where these are."""
        filters = self.size.points**2 * self.channels * self.outputs
        return winograd_rows.pieces(batch, self.values, max(CACHED, filters))


class Tiles:
    """The transformed tiles of x, which a forward pass keeps for the filters' gradient where they are few.

    Attributes:
        size: that of the tiles; None: there are none.
        seen: those of each piece of the images and each group, in order.
    """

    def __init__(self) -> None:
        self.size: Size | None = None
        self.seen: list[torch.Tensor] = []


def name(size: Size) -> str:
    """Return the name of the candidates of this size."""
    return f"winograd_tiles_f{size.outputs}{size.rows}"


def serves(x: torch.Tensor, filters: Sequence[int], out: Sequence[int], geometry: Geometry, size: Size) -> bool:
    """Return whether x (or dy) can be convolved so.

    Args:
        x: (N, C, H, W); it has to be channels last, on a CPU. For the gradient of x dy, (N, O, H', W').
        filters: their shape, (O, C / groups, r, r), in all directions.
        out: the spatial size of y, in all directions.
        geometry: what has stride or dilation is not served.
        size: that of a tile.
    """
    if geometry.kernel != (size.rows, size.rows) or not winograd.walks_plainly(x, geometry):
        return False
    tiling = _Tiling(size, filters[1], filters[0] // geometry.groups, tuple(out))
    return max(tiling.values, filters[0] * filters[1] * size.points**2) <= unfolded.MAX_COPY


def forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    geometry: Geometry,
    size: Size,
    relu: bool = False,
    kept: Tiles | None = None,
) -> torch.Tensor:
    """Return y = x * weight + bias, channels last, and with `relu` max(y, 0); keep the tiles of x if they are few."""
    filters = _filters(weight, matrices(size, x.dtype)[1]).transpose(1, 2).chunk(geometry.groups, 2)
    groups, (_, channels, outputs) = geometry.groups, filters[0].shape
    out = geometry.output_size(x.shape[2:])
    tiling = _Tiling(size, channels, outputs, out)
    y = x.new_empty(x.shape[0], *out, groups * outputs).permute(0, 3, 1, 2)
    biases = [None] * groups if bias is None else bias.chunk(groups)
    seen_tiles: list[torch.Tensor] = []
    keeps = kept is not None and groups * tiling.seen_values(x.shape[0]) <= KEPT
    for images in tiling.pieces(x.shape[0]):
        by_group = zip(y[images].chunk(groups, 1), x[images].chunk(groups, 1), filters, biases, strict=True)
        for mine, theirs, multiplied, added in by_group:
            seen = _seen(theirs, tiling, geometry)
            if keeps:
                seen_tiles.append(seen)
            products = torch.bmm(seen, multiplied)
            if added is not None:
                # What is added at the point 1 of both axes comes to all values of y alike.
                products[POINT_ONE * (size.points + 1)] += added
            _set(mine, products, tiling, relu)
    if kept is not None:
        kept.size, kept.seen = (size, seen_tiles) if keeps else (None, [])
    return y


def backward_data(dy: torch.Tensor, weight: torch.Tensor, geometry: Geometry, size: Size) -> torch.Tensor:
    """Return dx, channels last."""
    data = _Data(dy, weight, geometry, size)
    _transform(dy, data.tiling, geometry.groups, [data])
    return data.dx


def backward_weight(
    dy: torch.Tensor, x: torch.Tensor, geometry: Geometry, size: Size, kept: Tiles | None = None
) -> torch.Tensor:
    """Return the gradient of the filters as a view (O, C / groups, r, r); `kept` is what forward kept of x."""
    filters = _Filters(dy, x, geometry, size, kept)
    _transform(dy, filters.tiling, geometry.groups, [filters])
    return filters.gradient()


def suits_both(weight: torch.Tensor, size: Size) -> bool:
    """Return whether `backward` is worth its memory: sums and transformed filters are there at the same time."""
    return weight.numel() // size.rows**2 * size.points**2 <= unfolded.MAX_COPY // 2


def backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    geometry: Geometry,
    size: Size,
    kept: Tiles | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the two above do, to the bit: dx and the gradient of the filters. dy is transformed once."""
    data, filters = _Data(dy, weight, geometry, size), _Filters(dy, x, geometry, size, kept)
    _transform(dy, data.tiling, geometry.groups, [filters, data])
    return data.dx, filters.gradient()


class _Data:
    """The gradient of x, made from transformed tiles of dy.

    Attributes:
        tiling: how images are cut.
        dx: what has been made of it.
    """

    def __init__(self, dy: torch.Tensor, weight: torch.Tensor, geometry: Geometry, size: Size) -> None:
        groups, (outputs, channels) = geometry.groups, weight.shape[:2]
        self.tiling = _Tiling(size, channels, outputs // groups, tuple(dy.shape[2:]))
        image = geometry.transposed_size(dy.shape[2:])
        self.dx = dy.new_empty(dy.shape[0], *image, groups * channels).permute(0, 3, 1, 2)
        self._geometry, self._back = geometry, matrices(size, dy.dtype)[0].t()
        self._by_group = _filters(weight, matrices(size, dy.dtype)[1]).chunk(groups, 1)

    def take(self, images: slice, group: int, given: torch.Tensor) -> None:
        """Make the part that these images and this group have."""
        products = torch.bmm(given, self._by_group[group])
        part = self.dx[images].chunk(self._geometry.groups, 1)[group]
        _fold(part, _transformed(self._back, products), self.tiling, self._geometry)


class _Filters:
    """The gradient of the filters, summed up from transformed tiles of dy.

    Attributes:
        tiling: how images are cut.
    """

    def __init__(self, dy: torch.Tensor, x: torch.Tensor, geometry: Geometry, size: Size, kept: Tiles | None) -> None:
        groups = geometry.groups
        channels, outputs = x.shape[1] // groups, dy.shape[1] // groups
        self.tiling = _Tiling(size, channels, outputs, tuple(dy.shape[2:]))
        self._x, self._geometry = x, geometry
        self._kept = iter(kept.seen) if kept is not None and kept.size == size else None
        self._sums = x.new_empty(groups, size.points**2, channels, outputs)

    def take(self, images: slice, group: int, given: torch.Tensor) -> None:
        """Add what these images give to this group's sums."""
        if self._kept is None:
            x = self._x[images].chunk(self._geometry.groups, 1)[group]
            seen = _seen(x, self.tiling, self._geometry)
        else:
            seen = next(self._kept)
        beta, sums = min(images.start, 1), self._sums[group]
        parts = self._count_parts(seen.shape[1], sums.numel())
        if parts == 1:
            sums.baddbmm_(seen.transpose(1, 2), given, beta=beta)
            return
        seen, given = (each.view(each.shape[0] * parts, -1, each.shape[2]) for each in (seen, given))
        products = torch.bmm(seen.transpose(1, 2), given).view(sums.shape[0], parts, *sums.shape[1:])
        if beta:
            sums += products.sum(1)
        else:
            torch.sum(products, 1, out=sums)

    def _count_parts(self, tiles: int, values: int) -> int:
        """Return how many sums over tiles, each of so many values, are made apart."""
        if self.tiling.size.points <= _MOST_POINTS_OF_ONE_SUM:
            return 1
        parts = (tiles // few for few in _TILES_OF_A_SUM if tiles % few == 0)
        return next((count for count in parts if count * values <= unfolded.MAX_COPY), 1)

    def gradient(self) -> torch.Tensor:
        """Return the gradient as a view (O, C / groups, r, r)."""
        size, (groups, _, channels, outputs) = self.tiling.size, self._sums.shape
        filters = matrices(size, self._sums.dtype)[1]
        rows = torch.matmul(torch.kron(filters, filters).t(), self._sums.flatten(2))
        by_place = rows.view(groups, size.rows, size.rows, channels, outputs)
        return by_place.permute(0, 4, 3, 1, 2).flatten(0, 1)


def _transform(dy: torch.Tensor, tiling: _Tiling, groups: int, takers: Sequence[_Data | _Filters]) -> None:
    """Transform the tiles of dy, a piece of the images and a group at a time, and hand them on."""
    for images in tiling.pieces(dy.shape[0]):
        for group, mine in enumerate(dy[images].chunk(groups, 1)):
            given = _given(mine, tiling)
            for taker in takers:
                taker.take(images, group, given)


def _set(y: torch.Tensor, products: torch.Tensor, tiling: _Tiling, relu: bool) -> None:
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


def _fold(x: torch.Tensor, tiles: torch.Tensor, tiling: _Tiling, geometry: Geometry) -> None:
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


def _seen(x: torch.Tensor, tiling: _Tiling, geometry: Geometry) -> torch.Tensor:
    """Return the transformed tiles of x: (n n, N T, C)."""
    (above, before), (height, width) = geometry.pad, tiling.seen
    beyond = [0, 0, before, width - x.shape[3] - before, above, height - x.shape[2] - above]
    rows = x.permute(0, 2, 3, 1)
    padded = (torch.constant_pad_nd(rows, beyond) if any(beyond) else rows).contiguous()
    m, n, channels = tiling.size.outputs, tiling.size.points, tiling.channels
    line, image = width * channels, height * width * channels
    shape = (n, n, x.shape[0], *tiling.tiles, channels)
    tiles = padded.as_strided(shape, (line, channels, image, m * line, m * channels, 1)).reshape(n * n, -1, channels)
    return _transformed(matrices(tiling.size, x.dtype)[0], tiles)


def _given(dy: torch.Tensor, tiling: _Tiling) -> torch.Tensor:
    """Return the transformed tiles of dy: (n n, N T, O)."""
    m, (down, right), outputs = tiling.size.outputs, tiling.tiles, tiling.outputs
    beyond = [0, 0, 0, right * m - tiling.out[1], 0, down * m - tiling.out[0]]
    rows = dy.permute(0, 2, 3, 1)
    padded = torch.constant_pad_nd(rows, beyond) if any(beyond) else rows
    tiles = padded.reshape(-1, down, m, right, m, outputs).permute(2, 4, 0, 1, 3, 5).reshape(m * m, -1, outputs)
    return _transformed(matrices(tiling.size, dy.dtype)[2].t(), tiles)


def _transformed(matrix: torch.Tensor, tiles: torch.Tensor) -> torch.Tensor:
    """Return `matrix` (k, l) applied along both axes of tiles (l l, P, C): (k k, P, C)."""
    k, n = matrix.shape
    down = torch.mm(matrix, tiles.reshape(n, -1)).view(k, n, -1)
    return torch.bmm(matrix.expand(k, -1, -1), down).view(k * k, *tiles.shape[1:])


def _filters(weight: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Return the filters transformed by `matrix` (n, r) along both axes: (n n, O, C)."""
    outputs, channels = weight.shape[:2]
    by_place = weight.permute(2, 3, 0, 1).reshape(-1, outputs * channels)
    return torch.mm(torch.kron(matrix, matrix), by_place).view(-1, outputs, channels)
