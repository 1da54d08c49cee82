"""Resizes arrays as OpenCV's resize does, with each of its five interpolations.

Every interpolation is a weighted sum of a few source pixels along rows, and then along columns. OpenCV rounds weights
to 11 bits for images of bytes, so its values can differ from these by 1. (OpenCV: imgproc/resize.cpp.)
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from mgcaffe.engine.types import Array

_CUBIC = -0.75
_LANCZOS_LOBES = 4
_MIN_OVERLAP = 1e-3

Taps = tuple[NDArray[np.int64], NDArray[np.float32]]


def resize(image: Array, height: int, width: int, mode: str) -> Array:
    """Return the image in another size.

    Args:
        image: channels x rows x columns.
        height: rows of the result.
        width: columns of the result.
        mode: LINEAR, AREA, NEAREST, CUBIC or LANCZOS4.

    Returns:
        channels x height x width of the image's type; bytes are rounded and kept in their range.
    """
    rows, columns = image.shape[1:]
    if (rows, columns) == (height, width):
        return image
    shrinks = height <= rows and width <= columns
    if mode == "NEAREST":
        (row_numbers, _), (column_numbers, _) = _taps(mode, rows, height, True), _taps(mode, columns, width, True)
        return image[:, row_numbers[0][:, None], column_numbers[0]]
    values = _weighted(image, 1, _taps(mode, rows, height, shrinks))
    values = _weighted(values, 2, _taps(mode, columns, width, shrinks))
    if image.dtype == np.uint8:
        return np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return values.astype(image.dtype)


def _weighted(image: Array, axis: int, taps: Taps) -> Array:
    """Return the weighted sums of pixels along an axis."""
    shape = (-1, 1) if axis == 1 else (-1,)
    total: Array | None = None
    for numbers, weights in zip(*taps, strict=True):
        part: Array = np.take(image, numbers, axis=axis) * weights.reshape(shape)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total


@functools.lru_cache(maxsize=256)
def _taps(mode: str, source: int, size: int, shrinks: bool) -> Taps:
    """Source pixels and their weights, (taps, size) each, for every pixel of the result along one axis."""
    scale = source / size
    places = np.arange(size)
    if mode == "NEAREST":
        return np.minimum(np.floor(places * scale), source - 1).astype(np.int64)[None], np.ones((1, size), np.float32)
    if mode == "AREA" and shrinks:
        return _overlaps(source, size)
    if mode == "AREA":
        first = np.floor(places * scale)
        fraction = (places + 1) - (first + 1) / scale
        fraction = np.where(fraction <= 0, 0, fraction - np.floor(fraction))
    else:
        centres = (places + 0.5) * scale - 0.5
        first = np.floor(centres)
        fraction = centres - first
    if mode in ("LINEAR", "AREA"):
        fraction = np.where((first < 0) | (first >= source - 1), 0, fraction)
        first = np.clip(first, 0, source - 1)
        offsets, weights = [0, 1], np.stack([1 - fraction, fraction])
    elif mode == "CUBIC":
        offsets, weights = [-1, 0, 1, 2], _cubic(fraction)
    elif mode == "LANCZOS4":
        offsets, weights = list(range(1 - _LANCZOS_LOBES, 1 + _LANCZOS_LOBES)), _lanczos(fraction)
    else:
        raise ValueError(f"no interpolation is called {mode!r}")
    numbers = np.clip(first[None] + np.array(offsets)[:, None], 0, source - 1)
    return numbers.astype(np.int64), weights.astype(np.float32)


def _overlaps(source: int, size: int) -> Taps:
    """Return how much of each source pixel lies inside each pixel of the result, as a part of the latter."""
    scale = source / size
    starts, ends = np.arange(size) * scale, np.minimum((np.arange(size) + 1) * scale, source)
    first = np.floor(starts)
    numbers = first[None] + np.arange(int(np.ceil(ends - first).max()) + 1)[:, None]
    overlap = np.minimum(numbers + 1, ends) - np.maximum(numbers, starts)
    overlap[overlap <= _MIN_OVERLAP] = 0
    weights = overlap / overlap.sum(0)
    used = weights.any(1)
    return np.clip(numbers, 0, source - 1).astype(np.int64)[used], weights.astype(np.float32)[used]


def _cubic(x: NDArray[np.float64]) -> NDArray[np.float64]:
    def near(t: NDArray[np.float64]) -> NDArray[np.float64]:
        return ((_CUBIC + 2) * t - (_CUBIC + 3)) * t * t + 1

    def far(t: NDArray[np.float64]) -> NDArray[np.float64]:
        return ((_CUBIC * t - 5 * _CUBIC) * t + 8 * _CUBIC) * t - 4 * _CUBIC

    return np.stack([far(1 + x), near(x), near(1 - x), far(2 - x)])


def _lanczos(x: NDArray[np.float64]) -> NDArray[np.float64]:
    distances = x[None] + (_LANCZOS_LOBES - 1 - np.arange(2 * _LANCZOS_LOBES))[:, None]
    weights = np.sinc(distances) * np.sinc(distances / _LANCZOS_LOBES)
    normalized: NDArray[np.float64] = weights / weights.sum(0)
    return normalized
