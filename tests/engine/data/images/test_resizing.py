"""resize_param: sizes and margins of every mode, by SSD's rules, and the fields as a layer reads them."""

import math

import numpy as np
import pytest

from mgcaffe.engine.data.batches import BatchForm
from mgcaffe.engine.data.images.interpolation import resize
from mgcaffe.engine.data.images.resizing import Misfit, Resizing
from mgcaffe.engine.data.images.transform_fields import transformed_shape
from mgcaffe.engine.data.images.transformer import Transformer
from mgcaffe.errors import DataError, NetError
from mgcaffe.prototxt import TransformationParameter, parse_text
from tests.support.datakit import data_layer, images

FORM = BatchForm(np.dtype(np.float64), stream=77)
PADS = {"CONSTANT": "constant", "MIRRORED": "reflect", "REPEAT_NEAREST": "edge"}


def run(transformer, pixels, records=None):
    return transformer(list(pixels), list(records or range(len(pixels))), FORM, str)


@pytest.mark.parametrize("size", [(30, 50), (50, 30), (40, 40), (7, 90), (300, 200)])
@pytest.mark.parametrize("target", [(20, 20), (64, 48), (9, 100)])
def test_small_side_fits(size, target):
    aspect, new_aspect = np.float32(size[1]) / np.float32(size[0]), np.float32(target[1]) / np.float32(target[0])
    expected = (target[0], math.floor(aspect * np.float32(target[0])))
    if aspect < new_aspect:
        expected = (math.floor(np.float32(target[1]) / aspect), target[1])
    resizing = Resizing("FIT_SMALL_SIZE", *target)
    assert resizing.output_shape((3, *size)) == (3, *expected)
    assert resizing(np.zeros((3, *size), np.uint8), 0).shape == (3, *expected)
    assert min(expected[0] - target[0], expected[1] - target[1]) == 0


@pytest.mark.parametrize("pad_mode", PADS)
@pytest.mark.parametrize("size", [(30, 50), (50, 30), (40, 40)])
def test_large_side_fits_and_the_rest_is_filled(size, pad_mode):
    image = images(1, (3, *size))[0]
    resizing = Resizing("FIT_LARGE_SIZE_AND_PAD", 24, 32, pad_mode, (104.0, 117.0, 123.0))
    inner = (math.floor(32 / (size[1] / size[0])), 32) if size[1] / size[0] > 32 / 24 else (24, 24 * size[1] // size[0])
    above, left = (24 - inner[0]) // 2, (32 - inner[1]) // 2
    margins = ((0, 0), (above, 24 - inner[0] - above), (left, 32 - inner[1] - left))
    result = resizing(image, 0)
    small = resize(image, *inner, "LINEAR")
    assert result.shape == resizing.output_shape(image.shape) == (3, 24, 32)
    for plane, expected, value in zip(result, small, (104, 117, 123), strict=True):
        options = {"constant_values": value} if pad_mode == "CONSTANT" else {}
        np.testing.assert_array_equal(plane, np.pad(expected, margins[1:], mode=PADS[pad_mode], **options))


def test_without_pad_values_the_rest_is_zero():
    result = Resizing("FIT_LARGE_SIZE_AND_PAD", 4, 8)(np.full((1, 4, 4), 9, np.uint8), 0)
    assert result[0, 0].tolist() == [0, 0, 9, 9, 9, 9, 0, 0]


def test_pad_values_of_bytes_are_rounded_and_kept_in_their_range():
    resizing = Resizing("FIT_LARGE_SIZE_AND_PAD", 4, 8, pad_value=(300.0, -5.0, 6.6))
    assert resizing(np.full((3, 4, 4), 9, np.uint8), 0)[:, 0, 0].tolist() == [255, 0, 7]


def test_a_line_of_pixels_keeps_a_row_at_least():
    result = Resizing("FIT_LARGE_SIZE_AND_PAD", 3, 4)(np.full((1, 1, 9), 9, np.uint8), 0)
    assert result[0].tolist() == [[0] * 4, [9] * 4, [0] * 4]


def test_pad_values_have_to_fit_the_channels():
    resizing = Resizing("FIT_LARGE_SIZE_AND_PAD", 4, 8, pad_value=(1.0, 2.0))
    with pytest.raises(Misfit, match="pad_value is given 2 times, but images have 3"):
        resizing.output_shape((3, 4, 4))
    with pytest.raises(DataError, match=r"^0: pad_value is given 2 times"):
        run(Transformer(resizing=resizing), images(1))


def test_interpolations_are_drawn_by_record():
    modes = ("LINEAR", "NEAREST", "CUBIC")
    transformer = Transformer(resizing=Resizing("WARP", 4, 5, interpolations=modes))
    pixels = np.repeat(images(1), 60, axis=0)
    found = run(transformer, pixels)
    candidates = [resize(pixels[0], 4, 5, mode) for mode in modes]
    drawn = [next(n for n, c in enumerate(candidates) if np.array_equal(c, result)) for result in found]
    assert min(drawn.count(n) for n in range(3)) > 9
    for record in (0, 17, 59):
        np.testing.assert_array_equal(run(transformer, pixels[:1], [record])[0], found[record])


def test_prob_leaves_the_others_as_they_are():
    transformer = Transformer(resizing=Resizing("WARP", 9, 9, probability=0.25), crop_size=6)
    pixels = np.repeat(images(1, (1, 6, 6)), 400, axis=0)
    unchanged = sum(np.array_equal(result, pixels[0]) for result in run(transformer, pixels))
    assert 260 < unchanged < 340


def test_whether_an_image_is_resized_does_not_tell_the_interpolation():
    resizing = Resizing("WARP", 6, 6, interpolations=("NEAREST", "CUBIC"), probability=0.5)
    found = run(Transformer(resizing=resizing, crop_size=6), np.repeat(images(1, (1, 9, 9)), 40, axis=0))
    assert len(np.unique(found.reshape(40, -1), axis=0)) == 3


def test_resizing_comes_before_crop_mean_and_mirror():
    pixels = images(3, (3, 10, 12))
    mean = np.random.default_rng(1).random((3, 8, 9))
    resizing = Resizing("WARP", 8, 9)
    found = run(Transformer(resizing=resizing, crop_size=(4, 7), mean=mean, scale=0.5), pixels)
    for image, result in zip(pixels, found, strict=True):
        expected = (resize(image, 8, 9, "LINEAR") - mean) * 0.5
        np.testing.assert_allclose(result, expected[:, 2:6, 1:8])


def test_images_of_all_sizes_make_a_batch():
    pixels = [images(1, (3, 5 + n, 9 - n))[0] for n in range(4)]
    assert run(Transformer(resizing=Resizing("WARP", 6, 7)), pixels).shape == (4, 3, 6, 7)


def test_float_images_stay_floats():
    image = np.random.default_rng(0).random((1, 4, 4)).astype(np.float32)
    result = Resizing("WARP", 8, 8, interpolations=("CUBIC",))(image, 0)
    assert result.dtype == np.float32
    assert len(np.unique(result)) > 20


# -- the fields ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ("resize_param { height: 4 width: 5 }", (3, 4, 5)),
        ("resize_param { resize_mode: FIT_SMALL_SIZE height: 12 width: 12 }", (3, 12, 16)),
        ("resize_param { resize_mode: FIT_LARGE_SIZE_AND_PAD height: 12 width: 12 pad_value: 7 }", (3, 12, 12)),
        ("resize_param { height: 12 width: 12 interp_mode: AREA interp_mode: LANCZOS4 } crop_size: 10", (3, 10, 10)),
        ("crop_h: 3 crop_w: 7", (3, 3, 7)),
        ("resize_param { height: 12 width: 13 } crop_h: 11 crop_w: 5", (3, 11, 5)),
    ],
)
def test_layers_read_the_fields(source, fields, shape):
    layer = data_layer(source, 2, f"transform_param {{ {fields} }}")
    assert layer.reshape([])[0] == (2, *shape)
    assert tuple(layer.forward([])[0].shape) == (2, *shape)
    layer.close()


def test_without_a_source_the_fields_say_the_shape(tmp_path):
    for fields, shape in [
        ("crop_h: 3 crop_w: 7", (3, 3, 7)),
        ("resize_param { height: 4 width: 5 }", (3, 4, 5)),
    ]:
        layer = data_layer(tmp_path, 2, f"transform_param {{ {fields} }}", input_shapes={})
        assert layer.reshape([])[0] == (2, *shape)


@pytest.mark.parametrize(
    ("fields", "shape"),
    [
        ("", (3, 6, 8)),
        ("crop_size: 5", (3, 5, 5)),
        ("crop_h: 3 crop_w: 7", (3, 3, 7)),
        ("resize_param { resize_mode: FIT_SMALL_SIZE height: 12 width: 12 }", (3, 12, 16)),
        ("resize_param { height: 9 width: 9 } crop_size: 7", (3, 7, 7)),
    ],
)
def test_a_message_alone_tells_the_shape(fields, shape):
    assert transformed_shape(parse_text(fields, TransformationParameter), (3, 6, 8)) == shape


@pytest.mark.parametrize(
    ("fields", "message", "error"),
    [
        ("resize_param { }", "resize_param needs a height above 0", NetError),
        ("resize_param { height: 3 }", "resize_param needs a width above 0", NetError),
        ("resize_param { height: 3 width: 3 prob: 2 }", "prob has to be from 0 to 1", NetError),
        ("resize_param { height: 3 width: 3 pad_value: inf }", "a pad_value has to be finite", NetError),
        ("resize_param { height: 3 width: 3 } crop_size: 4", "crop_size 4 is larger than the image, 3 x 3", DataError),
        ("crop_h: 3", "crop_h and crop_w go together", NetError),
        ("crop_h: 3 crop_w: 3 crop_size: 3", "crop_size and crop_h exclude each other", NetError),
        ("crop_h: 3 crop_w: 9", "crop_h x crop_w 3 x 9 is larger than the image, 6 x 8", DataError),
        ("scale: nan", "scale is nan", NetError),
        ("scale: inf", "scale is inf, but has to be finite", NetError),
        ("mean_value: 1 mean_value: inf mean_value: 1", "mean_value is inf", NetError),
    ],
)
def test_fields_that_do_not_fit_are_refused(source, fields, message, error):
    with pytest.raises(error, match=message):
        data_layer(source, 2, f"transform_param {{ {fields} }}")
