"""Images as float arrays (height x width x channels, RGB, 0 to 1), and as a trained net wants them (Caffe: io.py)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgcaffe.engine.types import Array
from mgcaffe.errors import DataError, Location

# The luminance of linear sRGB, by which scikit-image turns colours into grey; Pillow's own weights differ.
_LUMINANCE = np.array([0.2125, 0.7154, 0.0721], np.float32)


def load_image(filename: str | os.PathLike[str], color: bool = True) -> Array:
    """Read an image.

    Args:
        filename: the file; its orientation note is not applied.
        color: True gives three channels, also for a grey image; False gives one. Transparency is dropped.

    Returns:
        float32, height x width x 3 (or 1), from 0 to 1.

    Raises:
        DataError: the file cannot be read, or is no image.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(filename) as image:
            pixels = _as_floats(image)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"the image cannot be read: {reason}", location=Location(os.fspath(filename))) from None
    if color:
        return np.repeat(pixels, 3, axis=2) if pixels.shape[2] == 1 else pixels
    return pixels if pixels.shape[2] == 1 else (pixels @ _LUMINANCE)[:, :, np.newaxis]


def _as_floats(image: Any) -> Array:
    """Height x width x 1 or 3."""
    if image.mode.startswith("I;16") or image.mode == "I":
        return np.asarray(image, np.float32)[:, :, np.newaxis] / 65535
    if image.mode == "F":
        return np.asarray(image, np.float32)[:, :, np.newaxis]
    grey = image.mode in ("1", "L", "LA")
    array = np.asarray(image.convert("L" if grey else "RGB"), np.float32) / 255
    return array[:, :, np.newaxis] if grey else array


def resize_image(image: Array, height: int, width: int, order: int = 1) -> Array:
    """Resize an image; values may be of any range and channels of any number.

    Pixels are taken as areas, edges as going on outwards, and nothing is smoothed before an image is made smaller.

    Args:
        image: height x width x channels.
        height, width: the new ones.
        order: one of ORDERS: 0 the nearest pixel, 1 linear, 3 cubic.

    Returns:
        float32, new height x new width x channels.
    """
    rows = _weights(image.shape[0], height, order)
    columns = _weights(image.shape[1], width, order)
    resized: Array = np.einsum("hi,ijk,wj->hwk", rows, image.astype(np.float64), columns, optimize=True)
    return resized.astype(np.float32)


def _nearest(distance: Array) -> Array:
    return ((distance >= -0.5) & (distance < 0.5)).astype(np.float64)


def _linear(distance: Array) -> Array:
    weights: Array = np.maximum(0, 1 - np.abs(distance))
    return weights


def _cubic(distance: Array) -> Array:
    """Catmull and Rom's."""
    x = np.abs(distance)
    near = 1.5 * x**3 - 2.5 * x**2 + 1
    far = -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


_KERNELS = {0: _nearest, 1: _linear, 3: _cubic}
ORDERS = tuple(_KERNELS)
"""The orders of interpolation."""


def _weights(old: int, new: int, order: int) -> Array:
    """Return new x old: how much each old pixel of a line counts for each new one."""
    centres = (np.arange(new) + 0.5) * old / new - 0.5
    reach = np.arange(-2, 4)
    positions = np.floor(centres)[:, np.newaxis] + reach
    kernel = _KERNELS[order](centres[:, np.newaxis] - positions)
    weights = np.zeros((new, old))
    lines = np.repeat(np.arange(new), len(reach))
    np.add.at(weights, (lines, np.clip(positions, 0, old - 1).astype(int).ravel()), kernel.ravel())
    return weights


def ten_crops(image: Array, height: int, width: int) -> list[Array]:
    """Return the crops at the four corners and in the centre, and their mirror images behind them.

    Args:
        image: height x width x channels, not smaller than the crops.
        height, width: those of the crops.
    """
    free_y, free_x = image.shape[0] - height, image.shape[1] - width
    corners = [(y, x) for y in (0, free_y) for x in (0, free_x)]
    corners.append((free_y // 2, free_x // 2))
    plain = [image[y : y + height, x : x + width] for y, x in corners]
    return [*plain, *(crop[:, ::-1] for crop in plain)]


def as_input(
    image: Array,
    *,
    transpose: Sequence[int] | None = None,
    channel_swap: Sequence[int] | None = None,
    raw_scale: float | None = None,
    mean: Array | None = None,
    input_scale: float | None = None,
) -> Array:
    """Return an image as a net's input wants it: each step only where it is given, in the order of the arguments.

    Args:
        image: float32, height x width x channels.
        transpose: the order of the axes; (2, 0, 1) gives channels x height x width.
        channel_swap: the order of the channels, then the first axis.
        raw_scale: factor before the mean is taken off.
        mean: what is taken off; broadcasts over the image.
        input_scale: factor after that.

    Returns:
        float32.
    """
    result = image
    if transpose is not None:
        result = result.transpose(transpose)
    if channel_swap is not None:
        result = result[list(channel_swap)]
    if raw_scale is not None:
        result = result * np.float32(raw_scale)
    if mean is not None:
        result = (result - mean).astype(np.float32, copy=False)  # Caffe: in place
    if input_scale is not None:
        result = result * np.float32(input_scale)
    return result
