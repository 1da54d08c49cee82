"""Images as float arrays, height x width x channels, RGB, from 0 to 1 (what scikit-image gave pycaffe)."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from mgcaffe.engine.data.images import float_images
from mgcaffe.engine.types import Array
from mgcaffe.errors import DataError
from mgcaffe.pycaffe.problems import ArgumentError, ImageFileError

__all__ = ["load_image", "oversample", "resize_image"]


def load_image(filename: str | os.PathLike[str], color: bool = True) -> Array:
    """Read an image.

    Args:
        filename: the file; its orientation note is not applied.
        color: True gives three channels, also for a grey image; False gives one. Transparency is dropped.

    Returns:
        float32, height x width x 3 (or 1), from 0 to 1.

    Raises:
        ImageFileError: the file cannot be read, or is no image.
    """
    try:
        return float_images.load_image(filename, color)
    except DataError as error:
        raise ImageFileError(error.message, location=error.location, hint=error.hint) from None


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
    if interp_order not in float_images.ORDERS:
        raise ArgumentError(f"interp_order is {interp_order}; known are {', '.join(map(str, float_images.ORDERS))}")
    if im.ndim != 3:
        raise ArgumentError(f"an image has the shape height x width x channels, not {im.shape}")
    return float_images.resize_image(im, int(new_dims[0]), int(new_dims[1]), interp_order)


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
    if images[0].shape[0] < height or images[0].shape[1] < width:
        raise ArgumentError(f"crops of {height} x {width} do not fit into images of shape {images[0].shape}")
    return np.stack([crop for image in images for crop in float_images.ten_crops(image, height, width)]).astype(
        np.float32
    )
