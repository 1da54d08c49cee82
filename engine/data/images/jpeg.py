"""The common kinds of JPEG files, decoded by Pillow's decoder into an image that each thread uses again.

This is what `Image.open` and `load` do for such a file, without what does not change the pixels (EXIF, profiles, a file
object, memory of its own for each image), and takes a tenth to a sixth less time. Whatever is not plain here, damage
included, is left to `Image.open`, so that its errors and its limits hold.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

_BEGIN, _MARKER = b"\xff\xd8\xff", 0xFF
# Baseline, extended and progressive frames, coded by Huffman's codes.
_FRAMES = (0xC0, 0xC1, 0xC2)
# Segments that may stand before the frame: tables, comments, those of applications.
_TABLES = (0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0))
_MAX_PIXELS = 1 << 22
"""Larger images are rare, and memory for one is not kept."""
_kept = threading.local()


def decode_jpeg(encoded: bytes, color: bool | None) -> Image.Image | None:
    """Return an image of mode RGB or L, or None if this file is not one of those that are decoded here.

    The image is the same object for all files of one size, and good until this thread decodes the next.

    Args:
        encoded: the bytes of a file.
        color: True for three channels, False for one, None for as many as the file has.
    """
    found = _frame(encoded)
    if found is None:
        return None
    height, width, channels = found
    if channels == 1 and color:
        return None
    mode = "RGB" if channels == 3 and color is not False else "L"
    image = _image(mode, width, height)
    try:
        image.frombytes(encoded, "jpeg", (mode, ""))
    except (ValueError, OSError):
        return None
    return image


def _image(mode: str, width: int, height: int) -> Image.Image:
    from PIL import Image

    image: Image.Image | None = getattr(_kept, mode, None)
    if image is None or image.size != (width, height):
        image = Image.new(mode, (width, height))
        setattr(_kept, mode, image)
    return image


def _frame(encoded: bytes) -> tuple[int, int, int] | None:
    """Return height, width and channels from a file's frame header; None for what is not decoded here."""
    if not encoded.startswith(_BEGIN):
        return None
    place, end = 2, len(encoded) - 9
    while place < end and encoded[place] == _MARKER:
        kind = encoded[place + 1]
        if kind in _FRAMES:
            _, _, _, _, depth, high, height, wide, width, channels = encoded[place : place + 10]
            height, width = high << 8 | height, wide << 8 | width
            plain = depth == 8 and channels in (1, 3) and 0 < height * width <= _MAX_PIXELS
            return (height, width, channels) if plain else None
        if kind not in _TABLES:
            return None
        place += 2 + (encoded[place + 2] << 8 | encoded[place + 3])
    return None
