"""Encoded images (JPEG, PNG, ...) as arrays in the order that OpenCV gives them to Caffe: B, G, R."""

from __future__ import annotations

import io
import struct
from typing import TYPE_CHECKING

import numpy as np

from mgcaffe.engine.data.images.jpeg import decode_jpeg
from mgcaffe.engine.data.images.linear_resizing import resize_bytes
from mgcaffe.engine.types import Array, Shape
from mgcaffe.errors import DataError

if TYPE_CHECKING:
    from PIL import Image

Planes = list[bytes]

_DECODING_ERRORS = (OSError, SyntaxError, ValueError, EOFError, struct.error)
# What red, green and blue are of grey, in 14 bits.
_GREY_SHARES = (4899, 9617, 1868)
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
    pixels = _decoded(encoded, color)
    if size is not None and size != (pixels.height, pixels.width):
        planes = resize_bytes(_array(pixels), *size).transpose(2, 0, 1)
    else:
        planes = _array(pixels).transpose(2, 0, 1)
    return planes[[2, 1, 0, 3]] if len(planes) == 4 else planes[::-1]


def decode_planes(encoded: bytes, color: bool, size: tuple[int, int] | None = None) -> tuple[Planes, Shape]:
    """Decode an image to the bytes that a record holds: `decode_image`'s, and faster.

    Args:
        encoded: the bytes of an image file.
        color: True for three channels, False for one.
        size: height and width to resize to.

    Returns:
        The channels' bytes in the order B, G, R, and the shape, channels x height x width.

    Raises:
        DataError: see `decode_image`.
    """
    pixels = _decoded(encoded, color)
    if size is not None and size != (pixels.height, pixels.width):
        resized_pixels = resize_bytes(_array(pixels), *size)
        planes = [resized_pixels[:, :, channel].tobytes() for channel in reversed(range(resized_pixels.shape[2]))]
        return planes, (len(planes), *size)
    planes = [pixels.tobytes("raw", band) for band in reversed(pixels.getbands())]
    return planes, (len(planes), pixels.height, pixels.width)


def image_shape(encoded: bytes) -> Shape:
    """Decode an image, to be sure that it can be, and return its own shape, channels x height x width.

    Raises:
        DataError: see `decode_image`.
    """
    pixels = _decoded(encoded, None)
    return len(pixels.getbands()), pixels.height, pixels.width


def resized(image: Array, height: int, width: int) -> Array:
    """Return an image (uint8, channels x height x width) at another size, as `decode_image` gives it."""
    if image.shape[1:] == (height, width):
        return image
    return resize_bytes(np.ascontiguousarray(image.transpose(1, 2, 0)), height, width).transpose(2, 0, 1)


def _decoded(encoded: bytes, color: bool | None) -> Image.Image:
    """Return an image of mode L, RGB or RGBA, good until this thread decodes the next one."""
    from PIL import Image, UnidentifiedImageError

    found = decode_jpeg(encoded, color)
    if found is not None:
        return found
    try:
        with Image.open(io.BytesIO(encoded)) as image:
            if image.mode in _DEEP_MODES:
                raise DataError(f"an image of mode {image.mode} has more than 8 bits a channel")
            if color is False:
                image.draft("L", None)  # a JPEG file holds the luminance as such
            pixels: Image.Image = image
            if "transparency" in image.info and image.mode == "P":
                pixels = image.convert("RGBA")
            mode = _mode(pixels.mode, color)
            if pixels.mode == "CMYK":
                return _from_cmyk(pixels, mode)
            if pixels.mode == mode:
                pixels.load()
                return pixels
            return pixels.convert(mode)
    except UnidentifiedImageError:
        why = "it is no image of a known kind" if encoded else "it is empty"
        raise DataError(f"the encoded image cannot be decoded: {why}") from None
    except (*_DECODING_ERRORS, Image.DecompressionBombError) as error:
        raise DataError(f"the encoded image cannot be decoded: {error}") from error


def _from_cmyk(pixels: Image.Image, mode: str) -> Image.Image:
    """Return an image of mode RGB or L, of the values that OpenCV gives (imgcodecs/utils.cpp)."""
    from PIL import Image

    inks = np.asarray(pixels).astype(np.int32)
    light = 255 - inks[:, :, 3:]
    colors = light - (inks[:, :, :3] * light >> 8)
    if mode == "L":
        colors = colors @ np.array(_GREY_SHARES, np.int32) + (1 << 13) >> 14
    return Image.fromarray(colors.astype(np.uint8))


def _array(pixels: Image.Image) -> Array:
    """Return rows x columns x channels."""
    return np.atleast_3d(np.asarray(pixels))


def _mode(mode: str, color: bool | None) -> str:
    if color is not None:
        return "RGB" if color else "L"
    if mode in ("L", "1"):
        return "L"
    return "RGBA" if mode in _ALPHA_MODES else "RGB"
