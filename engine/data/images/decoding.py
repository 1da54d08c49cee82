"""Encoded images (JPEG, PNG, ...) as arrays in the order that OpenCV gives them to Caffe: B, G, R."""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgcaffe.engine.types import Array
from mgcaffe.errors import DataError

_ALPHA_MODES = ("RGBA", "LA", "PA")
_DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")


def decode_image(encoded: bytes, color: bool | None = None, size: tuple[int, int] | None = None) -> Array:
    """Decode an image.

    Args:
        encoded: the bytes of an image file.
        color: True for three channels, False for one, None for as many as the file has.
        size: height and width to resize to, by bilinear interpolation between the four nearest pixels.

    Returns:
        uint8, channels x height x width, in any memory order, perhaps read-only. An orientation noted in the
        file is not applied.

    Raises:
        DataError: the bytes are no image, the image is cut off, or has more than 8 bits a channel.
    """
    from PIL import Image

    try:
        with Image.open(io.BytesIO(encoded)) as image:
            if image.mode in _DEEP_MODES:
                raise DataError(f"an image of mode {image.mode} has more than 8 bits a channel")
            if color is False:
                image.draft("L", None)  # a JPEG file holds the luminance as such
            pixels: Image.Image = image
            if "transparency" in image.info and image.mode == "P":
                pixels = image.convert("RGBA")
            pixels = pixels.convert(_mode(pixels.mode, color))
    except (OSError, SyntaxError, ValueError, EOFError, struct.error, Image.DecompressionBombError) as error:
        raise DataError(f"the encoded image cannot be decoded: {error}") from error
    if size is not None and size != (pixels.height, pixels.width):
        planes = _resized_planes(pixels.split(), *size)
    else:
        planes = np.atleast_3d(np.asarray(pixels)).transpose(2, 0, 1)
    return planes[[2, 1, 0, 3]] if len(planes) == 4 else planes[::-1]


def resized(image: Array, height: int, width: int) -> Array:
    """Return an image (uint8, channels x height x width) at another size, as `decode_image` gives it."""
    from PIL import Image

    if image.shape[1:] == (height, width):
        return image
    return _resized_planes([Image.fromarray(np.ascontiguousarray(plane)) for plane in image], height, width)


def _mode(mode: str, color: bool | None) -> str:
    if color is not None:
        return "RGB" if color else "L"
    if mode in ("L", "1"):
        return "L"
    return "RGBA" if mode in _ALPHA_MODES else "RGB"


def _resized_planes(planes: Sequence[Any], height: int, width: int) -> Array:
    """Resize as OpenCV's INTER_LINEAR: no smoothing before an image is made smaller, unlike Pillow's own resize."""
    from PIL import Image

    scale = (planes[0].width / width, 0.0, 0.0, 0.0, planes[0].height / height, 0.0)
    resized_planes = [
        # in floating point, since Pillow would cut fractions off rather than round them
        plane.convert("F").transform((width, height), Image.Transform.AFFINE, scale, Image.Resampling.BILINEAR)
        for plane in planes
    ]
    rounded: Array = np.rint(np.stack([np.asarray(plane) for plane in resized_planes]))
    return rounded.astype(np.uint8)
