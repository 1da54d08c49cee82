"""Cuts a window out of an image and fits it into a square (Caffe: window_data_layer.cpp).

    warp     the window itself is resized to crop_size x crop_size
    square   the smallest square around the window, with the same centre, is

With context_pad the region is first enlarged about its centre by crop_size / (crop_size - 2 context_pad), so that
after resizing the window has that many pixels of its surroundings on each side. What of an enlarged or squared region
lies outside the image stays empty: 0 in the top, which is the mean's colour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mgcaffe.engine.data.images.decoding import resized
from mgcaffe.engine.data.window_data_file import Window
from mgcaffe.engine.types import Array
from mgcaffe.errors import DataError


class Region(NamedTuple):
    """The part of an image that is resized, and where it goes.

    Attributes:
        x1, y1, x2, y2: its corners in the image, both inside.
        width, height: its size in the top; 0 where nothing of it is left.
        left, right, above: empty columns and rows around it in the top.
    """

    x1: int
    y1: int
    x2: int
    y2: int
    width: int
    height: int
    left: int
    right: int
    above: int


@dataclass(frozen=True)
class Cutter:
    """How windows are cut.

    Attributes:
        crop_size: edge of the square in the top.
        context_pad: pixels of surroundings on each side, in the top.
        square: take the square around a window, rather than the window.
    """

    crop_size: int
    context_pad: int = 0
    square: bool = False

    def region(self, window: Window, height: int, width: int) -> Region:
        """Return which part of an image of that size a window stands for.

        Raises:
            DataError: nothing of it lies in the image, or, where nothing may be left empty, a part does not.
        """
        if not (self.context_pad or self.square):
            if window.x1 < 0 or window.y1 < 0 or window.x2 >= width or window.y2 >= height:
                raise DataError(
                    f"{_corners(window)} reaches out of its image, of {height} x {width} (height x width)",
                    hint='only with context_pad or crop_mode: "square" windows may',
                )
            return Region(window.x1, window.y1, window.x2, window.y2, self.crop_size, self.crop_size, 0, 0, 0)
        x1, x2 = self._spread(window.x1, window.x2, self._half(window, horizontal=True))
        y1, y2 = self._spread(window.y1, window.y2, self._half(window, horizontal=False))
        if x1 >= width or y1 >= height or x2 < 0 or y2 < 0:
            raise DataError(f"{_corners(window)} lies outside its image, of {height} x {width} (height x width)")
        x1, x2, left, columns, right = self._clip(x1, x2, width)
        y1, y2, above, rows, _ = self._clip(y1, y2, height)
        return Region(x1, y1, x2, y2, columns, rows, left, right, above)

    def cut(self, image: Array, window: Window, mirrored: bool) -> tuple[Array, int, int]:
        """Return the resized region of an image (channels x height x width), and its first row and column in the top.

        It can be as large as the square or smaller. If mirrored, so is what stays empty around it.
        """
        region = self.region(window, *image.shape[1:])
        left = region.right if mirrored else region.left
        height = min(region.height, self.crop_size - region.above)
        width = min(region.width, self.crop_size - left)
        if height < 1 or width < 1:
            return image[:, :0, :0], 0, 0
        part = resized(image[:, region.y1 : region.y2 + 1, region.x1 : region.x2 + 1], height, width)
        return part[:, :, ::-1] if mirrored else part, region.above, left

    def _half(self, window: Window, horizontal: bool) -> np.float32:
        """Half the edge of the region before it is enlarged."""
        width, height = window.x2 - window.x1 + 1, window.y2 - window.y1 + 1
        if self.square:
            width = height = max(width, height)
        return np.float32((width if horizontal else height) / 2)

    def _spread(self, first: int, last: int, half: np.float32) -> tuple[int, int]:
        """First and last pixel of the enlarged region along one axis; in single precision, as Caffe."""
        scale = np.float32(self.crop_size) / np.float32(self.crop_size - 2 * self.context_pad)
        centre = np.float32(first) + np.float32((last - first + 1) / 2)
        return _round(centre - half * scale), _round(centre + half * scale)

    def _clip(self, first: int, last: int, size: int) -> tuple[int, int, int, int, int]:
        """Along one axis: first and last pixel in the image, then in the top: empty, filled, empty pixels."""
        scale = np.float32(self.crop_size) / np.float32(last - first + 1)
        before, behind = max(0, -first), max(0, last - size + 1)
        first, last = first + before, last - behind
        before, filled, behind = (_round(np.float32(count) * scale) for count in (before, last - first + 1, behind))
        return first, last, before, filled, behind


def _round(value: np.float32) -> int:
    """To the nearest whole number, halves away from 0, as C's round."""
    return int(math.copysign(math.floor(abs(float(value)) + 0.5), value))


def _corners(window: Window) -> str:
    return f"window ({window.x1}, {window.y1}) to ({window.x2}, {window.y2})"
