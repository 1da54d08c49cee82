"""Bilinear resizing of bytes: OpenCV's values, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from mgcaffe.engine.data.images.linear_resizing import resize_bytes

SIZES = [
    ((64, 80), (32, 32)),
    ((100, 75), (48, 64)),
    ((37, 53), (64, 99)),
    ((1, 5), (3, 8)),
    ((5, 1), (2, 9)),
    ((7, 7), (100, 3)),
    ((256, 256), (227, 227)),
    ((333, 500), (256, 256)),
]


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("source", "size"), SIZES)
def test_agrees_with_opencv_to_the_bit(source, size, channels):
    cv2 = pytest.importorskip("cv2")
    pixels = np.random.default_rng(0).integers(0, 256, (*source, channels), dtype=np.uint8)
    expected = cv2.resize(pixels, size[::-1]).reshape(*size, channels)
    np.testing.assert_array_equal(resize_bytes(pixels, *size), expected)


def test_halving_takes_the_mean_of_four_and_the_same_size_changes_nothing():
    pixels = np.array([[0, 4, 8, 12], [4, 8, 12, 16]], np.uint8)[:, :, np.newaxis]
    np.testing.assert_array_equal(resize_bytes(pixels, 1, 2)[:, :, 0], [[4, 12]])
    assert resize_bytes(pixels, 2, 4) is pixels
