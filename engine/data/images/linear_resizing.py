"""Bilinear resizing of bytes as OpenCV's INTER_LINEAR computes it, to the bit (OpenCV: imgproc/resize.cpp).

Weights are rounded to 11 bits; rows are interpolated along their pixels first, lose 4 bits, and are then mixed with
each other, each product cut off at 16 bits. Nothing is smoothed before an image is made smaller.
"""

from __future__ import annotations

import functools

import numpy as np
from numpy.typing import NDArray

from mgcaffe.engine.types import Array

_ONE = 2048
"""A weight of one, in 11 bits."""
_VALUES_AT_ONCE = 12_000
"""Values of the result that are computed at once: their intermediate arrays stay in the cache and in the heap."""

Numbers = NDArray[np.intp]
Weights = NDArray[np.int32]


def resize_bytes(image: Array, height: int, width: int) -> Array:
    """Return the image in another size.

    Args:
        image: uint8, rows x columns x channels.
        height: rows of the result.
        width: columns of the result.

    Returns:
        uint8, height x width x channels.
    """
    rows, columns, channels = image.shape
    if (rows, columns) == (height, width):
        return image
    (above, below), (weights_above, weights_below) = _taps(rows, height, clamped=False)
    (left, right), (weights_left, weights_right) = (
        [_for_each_channel(part, channels) for part in parts] for parts in _taps(columns, width, clamped=True)
    )
    for numbers in (left, right):
        numbers *= channels
        numbers += np.tile(np.arange(channels), width)
    flat = image.reshape(rows, columns * channels)
    result = np.empty((height, width * channels), np.uint8)
    step = max(1, _VALUES_AT_ONCE // (width * channels))
    for start in range(0, height, step):
        block = slice(start, start + step)
        needed, places = np.unique(np.concatenate([above[block], below[block]]), return_inverse=True)
        lines = flat[needed]
        across = lines[:, left] * weights_left
        across += lines[:, right] * weights_right
        across >>= 4
        upper, lower = across[places[: len(places) // 2]], across[places[len(places) // 2 :]]
        upper *= weights_above[block, np.newaxis]
        upper >>= 16
        lower *= weights_below[block, np.newaxis]
        lower >>= 16
        upper += lower
        upper += 2
        upper >>= 2
        result[block] = upper
    return result.reshape(height, width, channels)


def _for_each_channel(values: Array, channels: int) -> Array:
    return np.repeat(values, channels)


@functools.lru_cache(maxsize=256)
def _taps(source: int, size: int, clamped: bool) -> tuple[tuple[Numbers, Numbers], tuple[Weights, Weights]]:
    """Return the two source pixels of each pixel of the result along one axis, and their weights.

    Args:
        source: pixels that there are.
        size: pixels of the result.
        clamped: whether a pixel beyond the middle of the first or last one is that one alone, as along rows; down
            columns OpenCV mixes such a pixel with itself, which can round otherwise.
    """
    scale = 1.0 / (size / source)
    centres = ((np.arange(size) + 0.5) * scale - 0.5).astype(np.float32)
    first = np.floor(centres).astype(np.intp)
    fraction = centres - first.astype(np.float32)
    if clamped:
        fraction[(first < 0) | (first >= source - 1)] = 0
    numbers = np.clip(first, 0, source - 1), np.clip(first + 1, 0, source - 1)
    before, after = (np.rint(part * np.float32(_ONE)).astype(np.int32) for part in (np.float32(1) - fraction, fraction))
    return numbers, (before, after)
