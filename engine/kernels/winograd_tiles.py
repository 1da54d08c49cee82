"""Convolutions with fewer multiplications, by Winograd's filtering along both axes, in all three directions.

F(m x m, r x r) makes tiles of m x m values of output with square filters of r rows from tiles of n x n values of
input, n = m + r - 1, by n n multiplications instead of m m r r: F(2 x 2, 3 x 3) takes 16 instead of 36, F(4 x 4, 3 x 3)
36 instead of 144, and F(4 x 4, 5 x 5) 64 instead of 400:

    y = A^T [(G w G^T) * (B^T x B)] A,    dw = G^T [(A dy A^T) * (B^T x B)] G

with the matrices of `winograd_matrices.py`. What stands between the transforms are n n products over the channels. The
gradient for x is the adjoint, the sum of B [(G w G^T) * (A dy A^T)] B^T over tiles, which overlap as those of x do.
Sums over tiles round more than all else. With 5x5 filters they are made in parts of 8 to 64 tiles where such a number
divides that of the tiles, which leaves a third to two thirds of the rounding where BLAS sums up hundreds (MKL with
AVX-512).

Shapes: x (N, C, H, W) channels last, weight (O, C / groups, r, r), y and dy (N, O, H', W'), T = ceil(H' / m)
ceil(W' / m) tiles. Groups are computed one by one, and images in pieces that stay in a cache, or one by one. Of filters
at most `unfolded.MAX_COPY` values are there at a time, or where that is more, twice as many as all tiles of the batch
have, up to 64 MiB of float32. Where one group's sums for the filters' gradient would have `MAX_COPY` values they are
made for some outputs at a time: for as many as take a quarter of that, and at least 64. Of parts of sums there are at
most `MAX_COPY`. A piece of the images has at most 8 MiB, or as much as one group's filters, or is one image, which may
copy about `MAX_COPY` values, or as many as x and y have, up to 64 MiB.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import unfolded, winograd, winograd_grid
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.winograd_grid import Place, Tiling
from mgcaffe.engine.kernels.winograd_matrices import POINT_ONE, Size, matrices

SIZES = (Size(2, 3), Size(4, 3), Size(4, 5))
"""Those worth measuring."""

KEPT = 1 << 19
"""How many values of transformed tiles a forward pass keeps at most (2 MiB of float32)."""

_FILTERS_PER_TILES = 2
"""How many times as many values as all tiles of a batch transformed filters may have."""

_MOST_POINTS_OF_ONE_SUM, _TILES_OF_A_SUM = 36, range(64, 7, -1)

_OUTPUTS = 64


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
    tiling = Tiling(size, filters[1], filters[0] // geometry.groups, tuple(out))
    of_filters, of_tiles = filters[0] * filters[1] * size.points**2, x.shape[0] * geometry.groups * tiling.values
    blobs = x.shape[0] * math.prod(out) * (geometry.groups * filters[1] + filters[0])
    few_filters = of_filters <= unfolded.most_beside(_FILTERS_PER_TILES * of_tiles)
    return few_filters and tiling.values <= unfolded.most_beside(blobs)


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
    tiling = Tiling(size, channels, outputs, out)
    y = x.new_empty(x.shape[0], *out, groups * outputs).permute(0, 3, 1, 2)
    biases = [None] * groups if bias is None else bias.chunk(groups)
    to_keep: list[torch.Tensor] = []
    keeps = kept is not None and groups * tiling.seen_values(x.shape[0]) <= KEPT
    for place in tiling.places(x.shape[0], groups):
        seen = winograd_grid.seen_tiles(place.of(x, groups), tiling, geometry)
        if keeps:
            to_keep.append(seen)
        products = torch.bmm(seen, filters[place.group])
        del seen
        if (added := biases[place.group]) is not None:
            # What is added at the point 1 of both axes comes to all values of y alike.
            products[POINT_ONE * (size.points + 1)] += added
        winograd_grid.set_outputs(place.of(y, groups), products, tiling, relu)
    if kept is not None:
        kept.size, kept.seen = (size, to_keep) if keeps else (None, [])
    return y


def backward_data(dy: torch.Tensor, weight: torch.Tensor, geometry: Geometry, size: Size) -> torch.Tensor:
    """Return dx, channels last."""
    tiling = _tiling(dy, weight, geometry, size)
    data = _Data(dy, weight, geometry, tiling)
    for place in tiling.places(dy.shape[0], geometry.groups):
        data.set(place, data.products(place, winograd_grid.given_tiles(place.of(dy, geometry.groups), tiling)))
    return data.dx


def add_backward_weight(
    total: torch.Tensor,
    beta: float,
    dy: torch.Tensor,
    x: torch.Tensor,
    geometry: Geometry,
    size: Size,
    kept: Tiles | None = None,
) -> None:
    """Set total, the filters' gradient, to beta total + what x and dy give; `kept` is what forward kept of x."""
    tiling = _tiling(dy, total, geometry, size)
    filters = _Filters(total, beta, x, geometry, tiling, kept)
    for place in tiling.places(dy.shape[0], geometry.groups):
        filters.add(place, winograd_grid.given_tiles(place.of(dy, geometry.groups), tiling))


def backward(
    total: torch.Tensor,
    beta: float,
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    geometry: Geometry,
    size: Size,
    kept: Tiles | None = None,
) -> torch.Tensor:
    """Return dx and set total; both as above, to the bit, but dy is transformed once."""
    tiling = _tiling(dy, weight, geometry, size)
    filters, data = _Filters(total, beta, x, geometry, tiling, kept), None
    for place in tiling.places(dy.shape[0], geometry.groups):
        given = winograd_grid.given_tiles(place.of(dy, geometry.groups), tiling)
        filters.add(place, given)
        if data is None:  # where all images are one piece, the filters' gradient has freed its memory
            data = _Data(dy, weight, geometry, tiling)
        products = data.products(place, given)
        del given
        data.set(place, products)
    assert data is not None
    return data.dx


class _Data:
    """The gradient of x.

    Attributes:
        dx: what has been made of it.
    """

    def __init__(self, dy: torch.Tensor, weight: torch.Tensor, geometry: Geometry, tiling: Tiling) -> None:
        groups, image = geometry.groups, geometry.transposed_size(dy.shape[2:])
        self.dx = dy.new_empty(dy.shape[0], *image, groups * tiling.channels).permute(0, 3, 1, 2)
        inputs, filters, _ = matrices(tiling.size, dy.dtype)
        self._geometry, self._tiling, self._back = geometry, tiling, inputs.t()
        self._by_group = _filters(weight, filters).chunk(groups, 1)

    def products(self, place: Place, given: torch.Tensor) -> torch.Tensor:
        """Return the products of transformed tiles of dy with the transformed filters."""
        return torch.bmm(given, self._by_group[place.group])

    def set(self, place: Place, products: torch.Tensor) -> None:
        """Set dx there to what its transformed tiles give."""
        part = place.of(self.dx, self._geometry.groups)
        winograd_grid.fold(part, winograd_grid.transformed(self._back, products), self._tiling, self._geometry)


class _Filters:
    """Adds up the gradient of the filters: many sums for some outputs at a time, few over all images first."""

    def __init__(
        self, total: torch.Tensor, beta: float, x: torch.Tensor, geometry: Geometry, tiling: Tiling, kept: Tiles | None
    ) -> None:
        self._total, self._beta, self._x, self._geometry, self._tiling = total, beta, x, geometry, tiling
        self._kept = iter(kept.seen) if kept is not None and kept.size == tiling.size else None
        self._by_group: dict[int, torch.Tensor] = {}
        filters = matrices(tiling.size, x.dtype)[1]
        self._along_both = torch.kron(filters, filters).t()

    def add(self, place: Place, given: torch.Tensor) -> None:
        """Add what transformed tiles of dy give to the part of the total that is their group's."""
        if self._kept is None:
            seen = winograd_grid.seen_tiles(place.of(self._x, self._geometry.groups), self._tiling, self._geometry)
        else:
            seen = next(self._kept)
        total = self._total.chunk(self._geometry.groups)[place.group]
        outputs = outputs_at_a_time(self._tiling)
        if outputs < self._tiling.outputs:
            beta = 1.0 if place.images.start else self._beta
            for piece, part in zip(total.split(outputs), given.split(outputs, 2), strict=True):
                self._add_to(piece, beta, _summed(part, seen))
            return
        sums = _summed(given, seen, self._by_group.pop(place.group, None))
        if place.images.stop >= self._x.shape[0]:
            self._add_to(total, self._beta, sums)
        else:
            self._by_group[place.group] = sums

    def _add_to(self, total: torch.Tensor, beta: float, sums: torch.Tensor) -> None:
        """Set the total of some outputs to beta times it + what their sums over the tiles give."""
        rows, by_place = total.shape[2], torch.mm(self._along_both, sums.flatten(1))
        unfolded.add(total, by_place.view(rows, rows, *total.shape[:2]).permute(2, 3, 0, 1), beta)


def outputs_at_a_time(tiling: Tiling) -> int:
    """Return for how many outputs the filters' gradient is summed up at a time; where sums are few, for all."""
    of_output = tiling.size.points**2 * tiling.channels
    if of_output * tiling.outputs < unfolded.MAX_COPY:
        return tiling.outputs
    return _OUTPUTS * max(1, unfolded.MAX_COPY // 4 // (_OUTPUTS * of_output))


def _summed(given: torch.Tensor, seen: torch.Tensor, sums: torch.Tensor | None = None) -> torch.Tensor:
    """Return the products of transformed tiles of dy and x summed up over the tiles, (n n, O, C), added to `sums`."""
    (points, tiles, outputs), channels = given.shape, seen.shape[2]
    parts = count_parts(tiles, points, outputs * channels)
    if parts == 1 and sums is not None:
        return sums.baddbmm_(given.transpose(1, 2), seen)
    if parts > 1:
        seen, given = (each.reshape(points * parts, -1, each.shape[2]) for each in (seen, given))
    products = torch.bmm(given.transpose(1, 2), seen)
    if parts > 1:
        products = products.view(points, parts, outputs, channels).sum(1)
    return products if sums is None else sums.add_(products)


def count_parts(tiles: int, points: int, values: int) -> int:
    """Return how many sums over tiles, each of so many values a point, are made apart."""
    if points <= _MOST_POINTS_OF_ONE_SUM:
        return 1
    parts = (tiles // few for few in _TILES_OF_A_SUM if tiles % few == 0)
    return next((count for count in parts if count * points * values <= unfolded.MAX_COPY), 1)


def _tiling(dy: torch.Tensor, filters: torch.Tensor, geometry: Geometry, size: Size) -> Tiling:
    outputs, channels = filters.shape[:2]
    return Tiling(size, channels, outputs // geometry.groups, tuple(dy.shape[2:]))


def _filters(weight: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Return the filters transformed by `matrix` (n, r) along both axes: (n n, O, C)."""
    outputs, channels = weight.shape[:2]
    by_place = weight.permute(2, 3, 0, 1).reshape(-1, outputs * channels)
    return torch.mm(torch.kron(matrix, matrix), by_place).view(-1, outputs, channels)
