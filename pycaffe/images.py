"""Images as float arrays, height x width x channels, RGB, from 0 to 1 (what scikit-image gave pycaffe)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from mgcaffe.engine.types import Array
from mgcaffe.errors import DataError, Location
from mgcaffe.pycaffe.problems import ArgumentError

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
    try:
        with Image.open(filename) as image:
            pixels = _as_floats(image)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise DataError(f"the image cannot be read: {error}", location=Location(os.fspath(filename))) from None
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


def resize_image(im: Array, new_dims: Sequence[int] | Array, interp_order: int = 1) -> Array:
    """Resize an image; values may be of any range and channels of any number.

    Pixels are taken as areas, edges as going on outwards, and nothing is smoothed before an image is made smaller.

    Args:
        im: height x width x channels.
        new_dims: the new height and width.
        interp_order: 0 the nearest pixel, 1 linear, 3 cubic.

    Returns:
        float32, new height x new width x channels.

    Raises:
        ArgumentError: another order, or no image.
    """
    if interp_order not in _KERNELS:
        raise ArgumentError(f"interp_order is {interp_order}; known are {', '.join(map(str, _KERNELS))}")
    if im.ndim != 3:
        raise ArgumentError(f"an image has the shape height x width x channels, not {im.shape}")
    rows = _weights(im.shape[0], int(new_dims[0]), interp_order)
    columns = _weights(im.shape[1], int(new_dims[1]), interp_order)
    resized: Array = np.einsum("hi,ijk,wj->hwk", rows, im.astype(np.float64), columns, optimize=True)
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


def oversample(images: Sequence[Array] | Array, crop_dims: Sequence[int] | Array) -> Array:
    """Ten crops of each image: the four corners and the centre, and their mirror images behind them.

    Args:
        images: equally large, height x width x channels.
        crop_dims: height and width of the crops.

    Returns:
        float32, (10 x images) x height x width x channels.

    Raises:
        ArgumentError: the images are smaller than the crops.
    """
    height, width = (int(size) for size in crop_dims)
    free_y, free_x = images[0].shape[0] - height, images[0].shape[1] - width
    if free_y < 0 or free_x < 0:
        raise ArgumentError(f"crops of {height} x {width} do not fit into images of shape {images[0].shape}")
    corners = [(y, x) for y in (0, free_y) for x in (0, free_x)]
    corners.append((free_y // 2, free_x // 2))
    crops = []
    for image in images:
        plain = [image[y : y + height, x : x + width] for y, x in corners]
        crops += [*plain, *(crop[:, ::-1] for crop in plain)]
    return np.stack(crops).astype(np.float32)
