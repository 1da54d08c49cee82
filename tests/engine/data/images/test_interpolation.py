"""Every interpolation against OpenCV, where it is installed, and against written-out cases."""

import numpy as np
import pytest

from mgcaffe.engine.data.images.interpolation import resize

MODES = ("LINEAR", "AREA", "NEAREST", "CUBIC", "LANCZOS4")
SIZES = [
    ((37, 53), (20, 30)),
    ((37, 53), (60, 90)),
    ((40, 60), (20, 30)),
    ((37, 53), (60, 30)),
    ((5, 4), (11, 13)),
    ((90, 70), (7, 11)),
    ((37, 53), (37, 20)),
    ((1, 1), (3, 2)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("source", "size"), SIZES)
def test_agrees_with_opencv(mode, source, size):
    cv2 = pytest.importorskip("cv2")
    image = np.random.default_rng(0).integers(0, 256, (*source, 3), dtype=np.uint8)
    flag = getattr(cv2, f"INTER_{mode}")
    for pixels, tolerance in ((image.astype(np.float32), 2e-3), (image, 1)):
        expected = cv2.resize(pixels, size[::-1], interpolation=flag).transpose(2, 0, 1)
        found = resize(pixels.transpose(2, 0, 1), *size, mode)
        assert found.dtype == pixels.dtype
        assert np.abs(expected.astype(np.float64) - found).max() <= tolerance


def test_written_out():
    line = np.array([[[0, 10, 20, 30]]], np.uint8)
    assert resize(line, 1, 2, "LINEAR").tolist() == [[[5, 25]]]
    assert resize(line, 1, 2, "AREA").tolist() == [[[5, 25]]]
    np.testing.assert_allclose(resize(line.astype(np.float64), 1, 3, "AREA"), [[[2.5, 15, 27.5]]], rtol=1e-6)
    assert resize(line, 1, 2, "NEAREST").tolist() == [[[0, 20]]]
    assert resize(line, 1, 8, "LINEAR").tolist() == [[[0, 2, 8, 12, 18, 22, 28, 30]]]


@pytest.mark.parametrize("mode", MODES)
def test_an_even_image_stays_even_and_bytes_stay_in_their_range(mode):
    image = np.full((2, 9, 7), 255, np.uint8)
    assert (resize(image, 13, 4, mode) == 255).all()
    edges = np.zeros((1, 8, 8), np.uint8)
    edges[:, :, 4:] = 255
    assert resize(edges, 20, 20, mode).max() == 255


def test_the_same_size_is_the_same_image():
    image = np.zeros((1, 3, 4), np.uint8)
    assert resize(image, 3, 4, "CUBIC") is image


def test_an_unknown_mode_is_an_error():
    with pytest.raises(ValueError, match="BEST"):
        resize(np.zeros((1, 3, 4), np.uint8), 5, 5, "BEST")
