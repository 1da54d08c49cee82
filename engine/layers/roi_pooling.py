"""ROIPooling: the maximum of each cell of a grid laid over rectangles of the image.

    y[r, c, i, j] = max of x[b, c] inside cell (i, j) of rectangle r; 0 where the cell lies outside the image
    dx: dy goes to the place of each maximum, of equals the first in row order

A rectangle (b, x1, y1, x2, y2) has its corners multiplied by spatial_scale and rounded to whole pixels, both corners
included, and at least one pixel a side. Cell i covers the rows from floor(i h / pooled_h) to ceil((i + 1) h / pooled_h)
of its h rows, cut off at the image's edges; columns likewise.

Fields of `roi_pooling_param` (default): pooled_h, pooled_w: the grid, or pooled_size: one number for both, or one each;
spatial_scale (1).
Bottoms: x (N, C, H, W); rectangles (R, 5) or (R, 5, 1, 1), with b from 0 to N - 1; nothing flows to them.
Top: (R, C, pooled_h, pooled_w).
Differences from Caffe: a NaN in a cell makes its maximum NaN, where Caffe hides it. A rectangle of no image is an
error.
(Fast R-CNN's Caffe: roi_pooling_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from mgcaffe.engine.kernels.formats import from_pixel_rows, pixel_rows
from mgcaffe.engine.layer import Layer, exactly
from mgcaffe.engine.layers.shared.fields import refuse_empty_images
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape
from mgcaffe.errors import DataError

# Values that are gathered at a time: some 64 MiB.
_VALUES_AT_ONCE = 1 << 24


@register("ROIPooling")
class ROIPooling(Layer):
    """The layer; see the module's text."""

    bottoms = exactly(2)
    keeps_bottoms = False
    drops_gradients = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read the grid."""
        param = self.param.roi_pooling_param
        sizes = [int(size) for size in param.pooled_size]
        if len(sizes) > 2:
            self.fail(f"pooled_size is given {len(sizes)} times", "roi_pooling_param.pooled_size", hint="give two")
        if sizes and (param.HasField("pooled_h") or param.HasField("pooled_w")):
            self.fail("pooled_size excludes pooled_h and pooled_w", "roi_pooling_param.pooled_size")
        self.grid = (sizes[0], sizes[-1]) if sizes else (int(param.pooled_h), int(param.pooled_w))
        if min(self.grid) < 1:
            self.fail(
                f"pooled_h and pooled_w are {self.grid[0]} and {self.grid[1]}; both have to be at least 1",
                "roi_pooling_param.pooled_size" if sizes else "roi_pooling_param",
            )
        self.scale: float = param.spatial_scale
        if not 0 < self.scale < math.inf:
            self.fail(f"spatial_scale has to be above 0, not {self.scale:g}", "roi_pooling_param.spatial_scale")

    def differentiable(self, bottom: int) -> bool:
        """Nothing flows to the rectangles."""
        return bottom == 0

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """(R, C, pooled_h, pooled_w)."""
        image, rectangles = bottom_shapes
        if len(image) != 4:
            self.fail(f"bottom 0 needs 4 axes (N, C, H, W), not shape {image}")
        refuse_empty_images(self, image)
        if not rectangles or math.prod(rectangles[1:]) != 5:
            self.fail(f"bottom 1 has shape {rectangles}; it has to hold five numbers a rectangle: b, x1, y1, x2, y2")
        return [(rectangles[0], image[1], *self.grid)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the rows of the maxima in the image's list of pixels."""
        x, rectangles = bottoms[0], bottoms[1].reshape(-1, 5)
        pixels = pixel_rows(x)
        first, rows, columns = self._cells(rectangles, x.shape)
        tops, places = [], []
        for chunk in _chunks(len(rectangles), rows.shape[-1] * columns.shape[-1] * math.prod(self.grid) * x.shape[1]):
            values, place = _maxima(pixels, first[chunk], rows[chunk], columns[chunk], x.shape[3])
            tops.append(values)
            places.append(place)
        y = torch.cat(tops) if tops else x.new_empty(0, x.shape[1])
        self.saved = (x.shape, torch.cat(places) if tops else None) if self.backward_follows else None
        return [from_pixel_rows(y.reshape(-1, x.shape[1]), len(rectangles), *self.grid)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Add each gradient up at the place of its maximum."""
        if not wanted[0]:
            return [None, None]
        shape, places = self.saved
        batch, channels, height, width = shape
        dy = pixel_rows(top_diffs[0])
        # One row more takes the gradients of the cells outside the image, which go nowhere.
        dx = dy.new_zeros(batch * height * width + 1, channels)
        if places is not None:
            columns = torch.arange(channels, device=dy.device).expand(dy.shape)
            dx.index_put_((places.reshape(-1, channels), columns), dy, accumulate=True)
        return [from_pixel_rows(dx[:-1], batch, height, width), None]

    def _cells(self, rectangles: torch.Tensor, shape: torch.Size) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return of each rectangle the row of its image's first pixel; and the pixel rows and columns of its cells.

        Returns:
            (R); (R, pooled_h, most rows of a cell); (R, pooled_w, most columns of a cell); -1 where a cell has fewer.
        """
        images = rectangles[:, 0].long()
        self._check(rectangles, images, shape[0])
        corners = _round(rectangles[:, 1:] * self.scale)
        lines = []
        for axis, (start, end) in enumerate(((1, 3), (0, 2))):
            lines.append(_spans(corners[:, start], corners[:, end], self.grid[axis], shape[2 + axis]))
        return images * (shape[2] * shape[3]), lines[0], lines[1]

    def _check(self, rectangles: torch.Tensor, images: torch.Tensor, batch: int) -> None:
        wrong = (images < 0) | (images >= batch) | ~rectangles.isfinite().all(1)
        if not bool(wrong.any()):
            return
        first = int(wrong.nonzero()[0])
        numbers = ", ".join(f"{float(value):g}" for value in rectangles[first])
        self.fail(
            f"rectangle {first} of blob '{self.bottom_names[1]}' is ({numbers}): its first number has to be that of an"
            f" image of blob '{self.bottom_names[0]}', 0 to {batch - 1}, and all of them finite",
            error=DataError,
        )


def _round(values: torch.Tensor) -> torch.Tensor:
    """To the nearest whole number, halves away from zero as C's round does (torch.round takes the even one)."""
    return torch.copysign((values.abs() + 0.5).floor(), values)


def _spans(start: torch.Tensor, end: torch.Tensor, cells: int, size: int) -> torch.Tensor:
    """Return the pixels of each cell along one axis: (R, cells, most pixels of a cell), -1 behind the last one."""
    length = (end - start + 1).clamp_(min=1)
    step = (length / cells)[:, None]
    numbers = torch.arange(cells, dtype=start.dtype, device=start.device)
    low = ((numbers * step).floor() + start[:, None]).clamp_(0, size).long()
    high = (((numbers + 1) * step).ceil() + start[:, None]).clamp_(0, size).long()
    most = int((high - low).max()) if len(start) else 0
    pixels = low[..., None] + torch.arange(max(1, most), device=start.device)
    return pixels.masked_fill_(pixels >= high[..., None], -1)


def _chunks(count: int, values_each: int) -> Iterator[slice]:
    step = max(1, _VALUES_AT_ONCE // max(1, values_each))
    for start in range(0, count, step):
        yield slice(start, start + step)


def _maxima(
    pixels: torch.Tensor, first: torch.Tensor, rows: torch.Tensor, columns: torch.Tensor, width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each cell's maxima and their rows in `pixels`, (rectangles, pooled_h, pooled_w, C) each."""
    rows, columns = rows[:, :, None, :, None], columns[:, None, :, None, :]
    inside = ((rows >= 0) & (columns >= 0)).flatten(3)
    index = (first[:, None, None, None, None] + rows * width + columns).flatten(3)
    index = torch.where(inside, index, 0)
    values = pixels[index].masked_fill_(~inside[..., None], float("-inf"))
    best, which = values.max(3)
    places = index.gather(3, which)
    empty = ~inside.any(3)[..., None]
    return best.masked_fill_(empty, 0), places.masked_fill_(empty, len(pixels))
