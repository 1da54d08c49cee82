"""Images of every mode against OpenCV, which Caffe decodes with, and what is said of those that are none."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from mgcaffe.engine.data.images.decoding import decode_image
from mgcaffe.errors import DataError

PIXELS = np.random.default_rng(0).integers(0, 256, (21, 34, 4), dtype=np.uint8)


def encoded(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def rotated():
    notes = Image.Exif()
    notes[0x0112] = 6
    return notes


RGB = Image.fromarray(PIXELS[:, :, :3])
FILES = {
    "transparent": (encoded(Image.fromarray(PIXELS), "PNG"), 1),
    "palette": (encoded(RGB.convert("P"), "PNG"), 1),
    "palette and transparent": (encoded(RGB.convert("P"), "PNG", transparency=3), 1),
    "two colours": (encoded(RGB.convert("1"), "PNG"), 0),
    "grey and transparent": (encoded(RGB.convert("LA"), "PNG"), 0),
    "four inks": (encoded(Image.frombytes("CMYK", (34, 21), PIXELS.tobytes()), "JPEG"), 0),
    "turned by a note": (encoded(RGB, "JPEG", exif=rotated()), 0),
    "WebP": (encoded(RGB, "WEBP"), 0),
    "BMP": (encoded(RGB, "BMP"), 0),
}


@pytest.mark.parametrize("name", FILES)
def test_pixels_are_those_of_opencv(name):
    cv2 = pytest.importorskip("cv2")
    content, grey_levels = FILES[name]
    for color, flag, off in (
        (True, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION, 0),
        (False, cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION, grey_levels),
        (None, cv2.IMREAD_UNCHANGED, 0),
    ):
        expected = cv2.imdecode(np.frombuffer(content, np.uint8), flag)
        found = decode_image(content, color).transpose(1, 2, 0).squeeze()
        np.testing.assert_allclose(found.astype(int), expected.astype(int), rtol=0, atol=off)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "the encoded image cannot be decoded: it is empty"),
        (b"hello", "the encoded image cannot be decoded: it is no image of a known kind"),
        (encoded(Image.new("I;16", (2, 2)), "PNG"), "an image of mode I;16 has more than 8 bits a channel"),
    ],
)
def test_what_is_no_image_is_said_in_words(content, why):
    with pytest.raises(DataError) as caught:
        decode_image(content, True)
    assert str(caught.value) == why
