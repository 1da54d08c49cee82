"""Convolutions with fewer multiplications, by Winograd's filtering along the vertical axis, in all three directions.

F(m, r) makes m rows of output with filters of r rows from n = m + r - 1 rows of input, by n convolutions along the
horizontal axis instead of m r:

    y = A^T [(G w) * (B^T x)],    dw = G^T [(A dy) * (B^T x)]

so that F(4, 3) has half the multiplications, F(5, 3) 15 / 7, F(7, 3) 21 / 9 and F(4, 5) 20 / 8 of a part. The
gradient for x is a forward convolution by filters turned round. The matrices evaluate polynomials at n - 1 points and
at infinity (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", section 4); the points are small
fractions by which rounding grows little, found by trying all sets, and all entries are computed as fractions.

Shapes: x (N, C, H, W) channels last, weight (O, C / groups, r, s), y and dy (N, O, H', W'), T = ceil(H' / m) tiles.
Groups are computed one by one, and images in pieces, so that at most `unfolded.MAX_COPY` values are copied of images,
and of filters.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import NamedTuple

import torch

from mgcaffe.engine.kernels import onednn, unfolded
from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.engine.kernels.geometry import Geometry

_POINTS = tuple(map(Fraction, ("0", "1", "-1", "1/2", "-2", "-1/2", "2")))
_EIGHT_POINTS = tuple(map(Fraction, ("0", "1", "-1", "2", "-3/4", "2/3", "-1/3", "-3")))
POINT_ONE = 1
"""The place of the point 1 among the points."""
TYPES = (torch.float32, torch.float64)
"""What is served."""

Matrix = list[list[Fraction]]


class Size(NamedTuple):
    """F(m, r): `outputs` (m) rows are computed at a time, by filters of `rows` (r) rows."""

    outputs: int
    rows: int

    @property
    def points(self) -> int:
        """How many convolutions along the horizontal axis it takes (n)."""
        return self.outputs + self.rows - 1

    @property
    def name(self) -> str:
        """The candidates' name."""
        return f"winograd_f{self.outputs}{self.rows}"


SIZES = (Size(4, 3), Size(5, 3), Size(7, 3), Size(4, 5))
"""Those worth measuring; on the shapes of five nets others were slower than one of these, or hardly faster."""


def serves(x: torch.Tensor, filters: Sequence[int], out: Sequence[int], geometry: Geometry, size: Size) -> bool:
    """Return whether x (or dy) can be convolved so.

    Args:
        x: (N, C, H, W); it has to be channels last, on a CPU.
        filters: the shape of the filters.
        out: the spatial size of the result.
        geometry: what has stride or dilation is not served.
        size: that of a tile.
    """
    if geometry.rank != 2 or geometry.kernel[0] != size.rows or not walks_plainly(x, geometry):
        return False
    channels, outputs = x.shape[1] // geometry.groups, filters[0] // geometry.groups
    copied = max(_Tiling(size, x.shape[3], channels, outputs, tuple(out)).values, _values(filters, size))
    return copied <= unfolded.MAX_COPY


def walks_plainly(x: torch.Tensor, geometry: Geometry) -> bool:
    """Return whether x is channels last, of one of `TYPES` and on a CPU, and the filters have no stride or dilation.

    Pads have to be smaller than the filters, so that `turned` has none below 0.
    """
    if {*geometry.stride, *geometry.dilation} != {1} or any(
        pad >= kernel for pad, kernel in zip(geometry.pad, geometry.kernel, strict=True)
    ):
        return False
    return x.is_cpu and x.dtype in TYPES and x.numel() > 0 and format_of(x) == torch.channels_last


def turned(geometry: Geometry) -> Geometry:
    """Return the geometry of the forward convolution that gives the gradient for x."""
    pad = tuple(kernel - 1 - pad for kernel, pad in zip(geometry.kernel, geometry.pad, strict=True))
    return Geometry(geometry.kernel, geometry.stride, pad, geometry.dilation, geometry.groups)


def forward(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    geometry: Geometry,
    size: Size,
    relu: bool = False,
) -> torch.Tensor:
    """Return y = x * weight + bias, channels last, and with `relu` max(y, 0)."""
    filters = _transformed(weight, matrices(size, x.dtype)[1], torch.eye(geometry.kernel[1], dtype=x.dtype))
    return _convolved(x, filters, bias, geometry, size, relu)


def backward_data(dy: torch.Tensor, weight: torch.Tensor, geometry: Geometry, size: Size) -> torch.Tensor:
    """Return dx, channels last: dy convolved by the filters turned round, inputs and outputs exchanged."""
    exchanged = weight.unflatten(0, (geometry.groups, -1)).transpose(1, 2).flatten(0, 1)
    turning = torch.eye(geometry.kernel[1], dtype=dy.dtype).flip(0)
    filters = _transformed(exchanged, matrices(size, dy.dtype)[1].flip(1), turning)
    return _convolved(dy, filters, None, turned(geometry), size, False)


def backward_weight(dy: torch.Tensor, x: torch.Tensor, geometry: Geometry, size: Size) -> torch.Tensor:
    """Return the gradient of the filters as a view (O, C / groups, r, s)."""
    groups = geometry.groups
    tiling = _Tiling(size, x.shape[3], x.shape[1] // groups, dy.shape[1] // groups, tuple(dy.shape[2:]))
    gradients: list[torch.Tensor | None] = [None] * groups
    for images in pieces(x.shape[0], tiling.values):
        for group, (mine, theirs) in enumerate(_groups(x[images], dy[images], groups)):
            gradient, sum_before = _gradients(theirs, mine, geometry, tiling), gradients[group]
            gradients[group] = gradient if sum_before is None else sum_before.add_(gradient)
    gradient = torch.cat([each for each in gradients if each is not None], 1)
    filters = matrices(size, x.dtype)[1]
    rows = torch.mm(filters.t(), gradient.view(size.points, -1))
    return rows.view(size.rows, groups * tiling.outputs, tiling.channels, -1).permute(1, 2, 0, 3)


class _Tiling(NamedTuple):
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


def _values(filters: Sequence[int], size: Size) -> int:
    """Return how many values transformed filters of this shape have."""
    return math.prod(filters) // size.rows * size.points


def _convolved(
    x: torch.Tensor, filters: torch.Tensor, bias: torch.Tensor | None, geometry: Geometry, size: Size, relu: bool
) -> torch.Tensor:
    """Convolve by transformed filters (n, groups O, C, 1, s)."""
    groups, outputs = geometry.groups, filters.shape[1] // geometry.groups
    out = geometry.output_size(x.shape[2:])
    tiling = _Tiling(size, x.shape[3], x.shape[1] // groups, outputs, out)
    y = x.new_empty(x.shape[0], *out, groups * outputs).permute(0, 3, 1, 2)
    by_group = [part.unbind() for part in filters.chunk(groups, 1)]
    biases = [None] * groups if bias is None else bias.chunk(groups)
    for images in pieces(x.shape[0], tiling.values):
        for group, (mine, theirs) in enumerate(_groups(x[images], y[images], groups)):
            _convolve_piece(theirs, mine, by_group[group], biases[group], geometry, tiling, relu)
    return y


def _convolve_piece(
    y: torch.Tensor,
    x: torch.Tensor,
    filters: Sequence[torch.Tensor],
    bias: torch.Tensor | None,
    geometry: Geometry,
    tiling: _Tiling,
    relu: bool,
) -> None:
    """Set y, (N, O, H', W') of one group and a piece of the images; filters (O, C, 1, s) for each point."""
    size = tiling.size
    inputs, _, outputs = matrices(size, x.dtype)
    seen = _images(torch.mm(inputs, _tiles(x, tiling, size.points, geometry.pad[0])), tiling.width, tiling.channels)
    tiles = x.shape[0] * tiling.tiles
    products = x.new_empty(size.points, tiles, tiling.out[1], tiling.outputs)
    for point, (image, product) in enumerate(zip(seen, products.permute(0, 3, 1, 2).unbind(), strict=True)):
        # What is added at the point 1 comes to all rows of y alike.
        shift = bias if point == POINT_ONE else None
        product.copy_(_convolve(image, filters[point], shift, geometry.pad[1])[0])
    by_tile = products.view(size.points, tiles, -1).transpose(0, 1)
    computed = torch.bmm(outputs.expand(tiles, -1, -1), by_tile)
    rows = computed.view(x.shape[0], -1, tiling.out[1], tiling.outputs)[:, : tiling.out[0]].permute(0, 3, 1, 2)
    if relu:
        torch.clamp_min(rows, 0, out=y)
    else:
        y.copy_(rows)


def _gradients(dy: torch.Tensor, x: torch.Tensor, geometry: Geometry, tiling: _Tiling) -> torch.Tensor:
    """Return the gradients of transformed filters, (n, O, C, 1, s), that one group and a piece of the images give."""
    size = tiling.size
    inputs, _, outputs = matrices(size, x.dtype)
    seen = _images(torch.mm(inputs, _tiles(x, tiling, size.points, geometry.pad[0])), tiling.width, tiling.channels)
    given = _images(torch.mm(outputs.t(), _tiles(dy, tiling, size.outputs, 0)), tiling.out[1], tiling.outputs)
    lent = x.new_empty(tiling.outputs, tiling.channels, 1, geometry.kernel[1])
    pad = [0, geometry.pad[1]]
    return torch.stack([
        torch.ops.aten.convolution_backward(
            mine, theirs, lent, None, [1, 1], pad, [1, 1], False, [0, 0], 1, [False, True, False]
        )[1]
        for mine, theirs in zip(given, seen, strict=True)
    ])  # fmt: skip


def _convolve(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, pad: int) -> torch.Tensor:
    """Convolve along the horizontal axis."""
    along = Geometry((1, weight.shape[3]), (1, 1), (0, pad), (1, 1))
    if onednn.serves(x):
        return onednn.convolution(x, weight, bias, along)
    return torch.convolution(x, weight, bias, along.stride, along.pad, along.dilation, False, [0, 0], 1)


def _tiles(x: torch.Tensor, tiling: _Tiling, rows: int, above: int) -> torch.Tensor:
    """Return (rows, N T W C): the rows of all tiles, zero outside x, which begins `above` rows after the first tile."""
    x = x.permute(0, 2, 3, 1)
    batch, height, width, channels = x.shape
    step, line = tiling.size.outputs, width * channels
    high = tiling.tiles * step + rows - step
    padded = x.new_empty(batch, high, width, channels)
    padded[:, :above].zero_()
    padded[:, above : above + height] = x
    padded[:, above + height :].zero_()
    tiles = padded.as_strided((rows, batch, tiling.tiles, line), (line, high * line, step * line, 1))
    return tiles.reshape(rows, -1)


def _images(tiles: torch.Tensor, width: int, channels: int) -> Sequence[torch.Tensor]:
    """Return tiles as one high image for each row: (1, C, N T, W), channels last."""
    return tiles.view(tiles.shape[0], 1, -1, width, channels).permute(0, 1, 4, 2, 3).unbind()


def _groups(x: torch.Tensor, y: torch.Tensor, groups: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return the views of each group's channels."""
    return zip(x.chunk(groups, 1), y.chunk(groups, 1), strict=True)


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


def _transformed(weight: torch.Tensor, matrix: torch.Tensor, across: torch.Tensor) -> torch.Tensor:
    """Return (n, O, C, 1, s): `matrix` over the filters' rows and `across` over their columns."""
    outputs, channels, rows, columns = weight.shape
    filters = weight.reshape(outputs * channels, rows * columns)
    transformed = torch.mm(torch.kron(matrix, across), filters.t())
    return transformed.view(-1, columns, outputs, channels).permute(0, 2, 3, 1).unsqueeze(3)


@functools.cache
def matrices(size: Size, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return B^T (n, n), G (n, r) and A^T (m, n)."""
    finite = _POINTS[: size.points - 1] if size.points <= len(_POINTS) + 1 else _EIGHT_POINTS[: size.points - 1]
    inputs: Matrix = []
    filters: Matrix = []
    for one in finite:
        others = [other for other in finite if other != one]
        scale = math.prod((one - other for other in others), start=Fraction(1))
        inputs.append([*_coefficients(others), Fraction(0)])
        filters.append([one**power / scale for power in range(size.rows)])
    inputs.append(_coefficients(finite))
    filters.append([Fraction(power == size.rows - 1) for power in range(size.rows)])
    outputs = [[*(one**row for one in finite), Fraction(row == size.outputs - 1)] for row in range(size.outputs)]
    return _tensor(inputs, dtype), _tensor(filters, dtype), _tensor(outputs, dtype)


def _coefficients(roots: Sequence[Fraction]) -> list[Fraction]:
    """Return the coefficients of the polynomial that has these roots, the constant first."""
    polynomial = [Fraction(1)]
    for root in roots:
        raised, scaled = [Fraction(0), *polynomial], [*(-root * value for value in polynomial), Fraction(0)]
        polynomial = [one + other for one, other in zip(raised, scaled, strict=True)]
    return polynomial


def _tensor(matrix: Matrix, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([[float(value) for value in row] for row in matrix], dtype=dtype)
