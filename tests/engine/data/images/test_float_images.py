"""Float images: crops, and the steps that make an input of one; pycaffe's tests check reading and resizing."""

import numpy as np

from mgcaffe.engine.data.images.float_images import as_input, resize_image, ten_crops

IMAGE = np.arange(5 * 4 * 3, dtype=np.float32).reshape(5, 4, 3)


def test_ten_crops_are_the_corners_the_centre_and_their_mirror_images():
    crops = ten_crops(IMAGE, 3, 2)
    places = [(0, 0), (0, 2), (2, 0), (2, 2), (1, 1)]
    for crop, mirrored, (y, x) in zip(crops[:5], crops[5:], places, strict=True):
        np.testing.assert_array_equal(crop, IMAGE[y : y + 3, x : x + 2])
        np.testing.assert_array_equal(mirrored, crop[:, ::-1])


def test_the_steps_are_done_in_caffes_order_and_only_where_they_are_given():
    np.testing.assert_array_equal(as_input(IMAGE), IMAGE)
    mean = np.float32([1, 2, 3]).reshape(3, 1, 1)
    found = as_input(
        IMAGE, transpose=(2, 0, 1), channel_swap=(2, 1, 0), raw_scale=255, mean=mean, input_scale=0.5
    )  # fmt: skip
    np.testing.assert_allclose(found, (IMAGE.transpose(2, 0, 1)[::-1] * 255 - mean) * 0.5)


def test_an_image_of_the_same_size_stays_as_it_is_at_every_order():
    for order in (0, 1, 3):
        np.testing.assert_allclose(resize_image(IMAGE, 5, 4, order), IMAGE, rtol=1e-6)
    assert resize_image(IMAGE, 2, 7).shape == (2, 7, 3)
