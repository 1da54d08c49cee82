"""JPEG files that are decoded without Image.open, against Image.open; and those that are not."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from mgcaffe.engine.data.images.decoding import decode_image
from mgcaffe.engine.data.images.jpeg import decode_jpeg
from mgcaffe.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (37, 51, 3), dtype=np.uint8)


def jpeg(image=None, **options):
    buffer = io.BytesIO()
    (image or Image.fromarray(PIXELS)).save(buffer, "JPEG", **options)
    return buffer.getvalue()


def opened(encoded, mode):
    with Image.open(io.BytesIO(encoded)) as image:
        if mode == "L":
            image.draft("L", None)
        return np.asarray(image.convert(mode))


def with_orientation():
    exif = Image.Exif()
    exif[0x0112] = 6
    return jpeg(exif=exif, icc_profile=b"profile" * 9)


FILES = {
    "plain": jpeg(),
    "4:4:4": jpeg(subsampling=0),
    "4:2:2": jpeg(subsampling=1),
    "progressive": jpeg(progressive=True),
    "restart markers": jpeg(restart_marker_blocks=2),
    "optimized": jpeg(optimize=True, quality=30),
    "RGB, not YCbCr": jpeg(keep_rgb=True),
    "with notes": with_orientation(),
    "one pixel": jpeg(Image.fromarray(PIXELS[:1, :1])),
    "bytes behind it": jpeg() + b"more" * 9,
    "grey": jpeg(Image.fromarray(PIXELS[:, :, 0])),
}


@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_of_image_open(name):
    for color in (True, False, None):
        mode = "L" if color is False or (color is None and name == "grey") else "RGB"
        found = decode_jpeg(FILES[name], color)
        assert (found is None) == (name == "grey" and color is True)
        if found is not None:
            np.testing.assert_array_equal(np.asarray(found), opened(FILES[name], mode))
        planes = decode_image(FILES[name], color).transpose(1, 2, 0)[:, :, ::-1]
        np.testing.assert_array_equal(planes.squeeze(), opened(FILES[name], mode).squeeze())


def test_images_of_one_size_share_memory_and_results_do_not():
    first = decode_image(FILES["plain"], True)
    kept = first.copy()
    assert decode_jpeg(FILES["plain"], True) is decode_jpeg(FILES["4:4:4"], True)
    decode_image(FILES["4:4:4"], True)
    np.testing.assert_array_equal(first, kept)


def test_images_of_all_heights_and_widths_follow_one_another():
    for height, width in ((37, 51), (20, 51), (37, 51), (37, 24), (30, 51)):
        encoded = jpeg(Image.fromarray(PIXELS[:height, :width]))
        np.testing.assert_array_equal(np.asarray(decode_jpeg(encoded, True)), opened(encoded, "RGB"))


def test_a_large_colour_file_gives_the_luminance_that_it_holds(monkeypatch):
    monkeypatch.setattr("mgcaffe.engine.data.images.jpeg._MAX_PIXELS", 9)
    assert decode_jpeg(FILES["plain"], False) is None
    np.testing.assert_array_equal(decode_image(FILES["plain"], False)[0], opened(FILES["plain"], "L"))


@pytest.mark.parametrize(
    "encoded",
    [
        FILES["plain"][:-200],
        FILES["plain"][:300],
        FILES["plain"][:2],
        b"\xff\xd8\xff" + bytes(50),
        b"",
        jpeg(Image.fromarray(PIXELS).convert("CMYK")),
        b"\x89PNG",
    ],
)
def test_others_are_left_to_image_open(encoded):
    assert decode_jpeg(encoded, True) is None


def test_a_file_that_is_cut_off_gives_the_error_of_image_open():
    with pytest.raises(DataError, match="cannot be decoded: image file is truncated"):
        decode_image(FILES["plain"][:-200], True)
