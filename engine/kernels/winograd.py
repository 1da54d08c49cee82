"""Convolutions with fewer multiplications, by Winograd's filtering along the vertical axis, in all three directions.

F(m, r) makes m rows of output with filters of r rows from n = m + r - 1 rows of input, by n convolutions along the
horizontal axis instead of m r:

    y = A^T [(G w) * (B^T x)],    dw = G^T [(A dy) * (B^T x)]

so that F(4, 3) has half the multiplications, F(5, 3) 15 / 7, F(7, 3) 21 / 9 and F(4, 5) 20 / 8 of a part. The
gradient for x is along the vertical axis a forward convolution by filters turned round, along the horizontal one
PyTorch's own. `winograd_matrices.py` has the matrices.

Shapes: x (N, C, H, W) channels last, weight (O, C / groups, r, s), y and dy (N, O, H', W'), T = ceil(H' / m) tiles.
Groups are computed one by one, and images in pieces, so that at most `unfolded.MAX_COPY` values are copied of images
and of filters; of one image, where it is large, as many as x and y have, up to 64 MiB of float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from mgcaffe.engine.kernels import aten, onednn, unfolded
from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.winograd_matrices import POINT_ONE, Size, matrices
from mgcaffe.engine.kernels.winograd_rows import Tiling, as_high_images, pieces, transformed_rows

TYPES = (torch.float32, torch.float64)
"""What is served."""
Convolve = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]
"""Convolves an image along the horizontal axis by the filters of one point, and adds a bias if there is one."""

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
    of_image = Tiling(size, x.shape[3], channels, outputs, tuple(out)).values
    blobs = x.numel() + x.shape[0] * filters[0] * math.prod(out)
    return of_image <= unfolded.most_beside(blobs) and _values(filters, size) <= unfolded.MAX_COPY


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
    kept: object = None,
) -> torch.Tensor:
    """Return y = x * weight + bias, channels last, and with `relu` max(y, 0). Nothing is kept."""
    filters = _transformed(weight, matrices(size, x.dtype)[1])
    along = _along(geometry)

    def convolve(image: torch.Tensor, of_point: torch.Tensor, added: torch.Tensor | None) -> torch.Tensor:
        if onednn.serves(image):
            return onednn.convolution(image, of_point, added, along)
        return aten.convolve(image, of_point, added, along)

    outputs = weight.shape[0] // geometry.groups
    return _convolved(x, filters, outputs, bias, geometry, size, convolve, relu)


def backward_data(dy: torch.Tensor, weight: torch.Tensor, geometry: Geometry, size: Size) -> torch.Tensor:
    """Return dx, channels last: dy convolved along the vertical axis by filters turned round."""
    filters = _transformed(weight, matrices(size, dy.dtype)[1].flip(1))
    inputs, back = weight.shape[1], turned(geometry)
    width, along = back.output_size(dy.shape[2:])[1], _along(geometry)

    def convolve(image: torch.Tensor, of_point: torch.Tensor, added: torch.Tensor | None) -> torch.Tensor:
        assert added is None
        lent = image.new_empty(1, image.shape[2], width, inputs).permute(0, 3, 1, 2)
        return aten.convolution_backward(image, lent, of_point, along, [True, False, False])[0]

    return _convolved(dy, filters, inputs, None, back, size, convolve, relu=False)


def add_backward_weight(
    total: torch.Tensor,
    beta: float,
    dy: torch.Tensor,
    x: torch.Tensor,
    geometry: Geometry,
    size: Size,
    kept: object = None,
) -> None:
    """Set total, the filters' gradient, to beta total + what x and dy give. Nothing was kept."""
    groups = geometry.groups
    tiling = Tiling(size, x.shape[3], x.shape[1] // groups, dy.shape[1] // groups, tuple(dy.shape[2:]))
    outputs, columns, channels = groups * tiling.outputs, geometry.kernel[1], tiling.channels
    gradients = x.new_empty(outputs, size.points, columns, channels)
    for number, images in enumerate(pieces(x.shape[0], tiling.values)):
        by_group = zip(gradients.chunk(groups), _groups(x[images], dy[images], groups), strict=True)
        for sums, (mine, theirs) in by_group:
            _add_gradients(sums, theirs, mine, geometry, tiling, is_first=number == 0)
    filters = matrices(size, x.dtype)[1].t()
    rows = torch.bmm(filters.expand(outputs, -1, -1), gradients.flatten(2))
    unfolded.add(total, rows.view(outputs, size.rows, columns, channels).permute(0, 3, 1, 2), beta)


def _values(filters: Sequence[int], size: Size) -> int:
    """Return how many values transformed filters of this shape have."""
    return math.prod(filters) // size.rows * size.points


def _convolved(
    x: torch.Tensor,
    filters: torch.Tensor,
    outputs: int,
    bias: torch.Tensor | None,
    geometry: Geometry,
    size: Size,
    convolve: Convolve,
    relu: bool,
) -> torch.Tensor:
    """Convolve by transformed filters (n, O, C / groups, 1, s), O of the weight, so that each group makes `outputs`."""
    groups = geometry.groups
    out = geometry.output_size(x.shape[2:])
    tiling = Tiling(size, x.shape[3], x.shape[1] // groups, outputs, out)
    y = x.new_empty(x.shape[0], *out, groups * outputs).permute(0, 3, 1, 2)
    by_group = [part.unbind() for part in filters.chunk(groups, 1)]
    biases = [None] * groups if bias is None else bias.chunk(groups)
    for images in pieces(x.shape[0], tiling.values):
        for group, (mine, theirs) in enumerate(_groups(x[images], y[images], groups)):
            above = geometry.pad[0]
            _convolve_piece(theirs, mine, by_group[group], biases[group], above, tiling, convolve, relu)
    return y


def _convolve_piece(
    y: torch.Tensor,
    x: torch.Tensor,
    filters: Sequence[torch.Tensor],
    bias: torch.Tensor | None,
    above: int,
    tiling: Tiling,
    convolve: Convolve,
    relu: bool,
) -> None:
    """Set y, (N, O, H', W') of one group and a piece of the images; filters one for each point."""
    size = tiling.size
    inputs, _, outputs = matrices(size, x.dtype)
    seen = as_high_images(transformed_rows(x, inputs, tiling, above), tiling.width, tiling.channels)
    tiles = x.shape[0] * tiling.tiles
    products = x.new_empty(size.points, tiles, tiling.out[1], tiling.outputs)
    for point, (image, product) in enumerate(zip(seen, products.permute(0, 3, 1, 2).unbind(), strict=True)):
        # What is added at the point 1 comes to all rows of y alike.
        product.copy_(convolve(image, filters[point], bias if point == POINT_ONE else None)[0])
    by_tile = products.view(size.points, tiles, -1).transpose(0, 1)
    place = y.permute(0, 2, 3, 1)
    if place.is_contiguous() and tiling.out[0] % size.outputs == 0:
        torch.bmm(outputs.expand(tiles, -1, -1), by_tile, out=place.view(tiles, size.outputs, -1))
        if relu:
            y.clamp_(min=0)
        return
    computed = torch.bmm(outputs.expand(tiles, -1, -1), by_tile)
    rows = computed.view(x.shape[0], -1, tiling.out[1], tiling.outputs)[:, : tiling.out[0]]
    if relu:
        torch.clamp_min(rows, 0, out=place)
    else:
        place.copy_(rows)


def _add_gradients(
    sums: torch.Tensor, dy: torch.Tensor, x: torch.Tensor, geometry: Geometry, tiling: Tiling, is_first: bool
) -> None:
    """Add the gradients of transformed filters, (O, n, s, C), that one group and a piece of the images give."""
    size = tiling.size
    inputs, _, outputs = matrices(size, x.dtype)
    seen = as_high_images(transformed_rows(x, inputs, tiling, geometry.pad[0]), tiling.width, tiling.channels)
    given = as_high_images(transformed_rows(dy, outputs.t(), tiling, 0), tiling.out[1], tiling.outputs)
    lent = x.new_empty(tiling.outputs, 1, geometry.kernel[1], tiling.channels).permute(0, 3, 1, 2)
    along = _along(geometry)
    for mine, theirs, total in zip(given, seen, sums.unbind(1), strict=True):
        gradient = aten.convolution_backward(mine, theirs, lent, along, [False, True, False])[1]
        unfolded.add(total, gradient[:, :, 0].transpose(1, 2), 0.0 if is_first else 1.0)


def _along(geometry: Geometry) -> Geometry:
    """Return the walk along the horizontal axis."""
    return Geometry((1, geometry.kernel[1]), (1, 1), (0, geometry.pad[1]), (1, 1))


def _groups(x: torch.Tensor, y: torch.Tensor, groups: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return the views of each group's channels."""
    return zip(x.chunk(groups, 1), y.chunk(groups, 1), strict=True)


def _transformed(weight: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """Return `matrix` (n, r) over the filters' rows as a view (n, O, C, 1, s), each filter of it channels last."""
    outputs, channels, rows, columns = weight.shape
    by_row = weight.permute(0, 2, 3, 1).reshape(outputs, rows, columns * channels)
    transformed = torch.bmm(matrix.expand(outputs, -1, -1), by_row)
    return transformed.view(outputs, -1, columns, channels).permute(1, 0, 3, 2).unsqueeze(3)
