"""img_rand_resize_lower and what belongs to it, against the rules of NVIDIA's image_random_resize."""

import math

import numpy as np
import pytest

from mgcaffe.engine.data.batches import BatchForm
from mgcaffe.engine.data.images.interpolation import resize
from mgcaffe.engine.data.images.random_resizing import RandomResizing
from mgcaffe.engine.data.images.transformer import Transformer
from mgcaffe.errors import DataError, NetError
from tests.support.datakit import data_layer, datum, images, write_lmdb, write_mean

FORM = BatchForm(np.dtype(np.float64), stream=77)
SHAPES = [(30, 50), (50, 30), (40, 40), (33, 97)]


def half_up(value):
    return math.floor(np.float32(value) + np.float32(0.5))


def new_sizes(resizing, shape, count=200):
    return [image.shape[1:] for image in resizing([np.zeros((1, *shape), np.uint8)] * count, range(count), 5)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_shorter_side_is_drawn_and_proportions_are_kept(shape):
    found = new_sizes(RandomResizing((8, 8), sizes=(20, 28)), shape)
    assert {min(size) for size in found} == set(range(20, 29))
    for height, width in found:
        scale = np.float32(min(height, width)) / np.float32(min(shape))
        assert (height, width) == (half_up(scale * np.float32(shape[0])), half_up(scale * np.float32(shape[1])))


def test_equal_bounds_leave_nothing_to_chance():
    assert set(new_sizes(RandomResizing((8, 8), sizes=(20, 20)), (30, 45))) == {(20, 30)}


def test_images_grow_only_where_that_is_allowed():
    assert set(new_sizes(RandomResizing((8, 8), sizes=(60, 60)), (30, 45))) == {(30, 45)}
    assert set(new_sizes(RandomResizing((8, 8), sizes=(60, 60), may_grow=True), (30, 45))) == {(60, 90)}


def test_an_image_is_at_least_as_large_as_the_crop():
    assert set(new_sizes(RandomResizing((25, 40), sizes=(20, 20)), (30, 45))) == {(25, 40)}
    assert set(new_sizes(RandomResizing((25, 50), sizes=(20, 20)), (30, 45))) == {(25, 45)}
    assert set(new_sizes(RandomResizing((25, 50), sizes=(20, 20), may_grow=True), (30, 45))) == {(25, 50)}


@pytest.mark.parametrize("shape", [(30, 50), (50, 30)])
def test_the_longer_side_becomes_the_ratio_times_the_shorter_one(shape):
    found = new_sizes(RandomResizing((8, 8), sizes=(20, 20), ratios=(1.0, 1.5)), shape)
    assert {size[int(shape[1] < shape[0])] for size in found} == {20}
    longer = [max(size) for size in found]
    assert min(longer) <= 21 and max(longer) >= 29 and max(longer) <= 30


def test_of_a_square_either_side_is_lengthened():
    found = new_sizes(RandomResizing((8, 8), sizes=(20, 20), ratios=(1.5, 2.0), may_grow=True), (40, 40))
    assert {min(size) for size in found} == {20}
    wider = sum(size[1] > size[0] for size in found)
    assert 60 < wider < 140 and wider + sum(size[0] > size[1] for size in found) == 200


def test_height_and_width_are_stretched_apart():
    resizing = RandomResizing((8, 8), vertical=(0.5, 0.75), horizontal=(1.0, 1.25), may_grow=True)
    found = new_sizes(resizing, (40, 80))
    heights, widths = zip(*found, strict=True)
    assert (min(heights), max(heights)) == (20, 30) and (min(widths), max(widths)) == (80, 100)
    assert len(set(found)) > 90


def test_interpolation_depends_on_the_direction():
    image = images(1, (3, 20, 30))[0]
    resizing = RandomResizing((8, 8), sizes=(10, 10), down="AREA", up="LINEAR")
    np.testing.assert_array_equal(resizing([image], [0], 5)[0], resize(image, 10, 15, "AREA"))
    resizing = RandomResizing((8, 8), sizes=(40, 40), down="AREA", up="LINEAR", may_grow=True)
    np.testing.assert_array_equal(resizing([image], [0], 5)[0], resize(image, 40, 60, "LINEAR"))
    mixed = RandomResizing((8, 8), vertical=(2.0, 2.0), horizontal=(0.5, 0.5), down="AREA", up="LINEAR", may_grow=True)
    np.testing.assert_array_equal(mixed([image], [0], 5)[0], resize(image, 40, 15, "LINEAR"))


def test_a_record_gets_the_same_size_in_any_batch():
    pixels = images(1, (3, 20, 30))[0]
    transformer = Transformer(crop_size=8, random_crop=True, random_resizing=RandomResizing((8, 8), sizes=(10, 18)))
    together = transformer([pixels] * 20, range(20), FORM, str)
    assert len(np.unique(together.reshape(20, -1), axis=0)) > 10
    for record in (0, 7, 19):
        np.testing.assert_array_equal(transformer([pixels], [record], FORM, str)[0], together[record])


def test_the_window_is_cut_after_resizing_and_loses_the_centre_of_the_mean():
    pixels = images(1, (3, 20, 30))[0]
    mean = images(1, (3, 16, 18), seed=3)[0].astype(np.float64)
    resizing = RandomResizing((8, 9), sizes=(10, 10))
    transformer = Transformer(crop_size=(8, 9), mean=mean, scale=0.5, random_resizing=resizing)
    found = transformer([pixels], [4], FORM, str)[0]
    window = resize(pixels, 10, 15, "NEAREST")[:, 1:9, 3:12].astype(np.float64)
    np.testing.assert_allclose(found, (window - mean[:, 4:12, 4:13]) * 0.5)
    mirrored = Transformer(crop_size=(8, 9), mean=mean, scale=0.5, mirror=True, random_resizing=resizing)
    both = mirrored([pixels] * 20, range(20), FORM, str)
    flipped = sum(np.allclose(each, found[:, :, ::-1]) for each in both)
    assert 0 < flipped < 20 and flipped + sum(np.allclose(each, found) for each in both) == 20


def test_a_small_image_is_refused_where_it_may_not_grow():
    pixels = images(1, (3, 20, 30))
    with pytest.raises(DataError, match=r"^0: crop_size 25 is larger than the image, 20 x 30"):
        Transformer(crop_size=25, random_resizing=RandomResizing((25, 25), sizes=(40, 40)))(pixels, [0], FORM, str)
    grows = Transformer(crop_size=25, random_resizing=RandomResizing((25, 25), sizes=(10, 10), may_grow=True))
    assert grows.output_shape((3, 20, 30)) == (3, 25, 25)
    assert grows(pixels, [0], FORM, str).shape == (1, 3, 25, 25)


@pytest.fixture
def source(tmp_path):
    pixels = [images(1, (3, *shape), seed=number)[0] for number, shape in enumerate(SHAPES)]
    return write_lmdb(tmp_path / "records", [datum(image, number) for number, image in enumerate(pixels)])


def test_a_layer_reads_the_fields_of_the_forks_nets(source):
    text = "transform_param { mirror: true crop_size: 24 img_rand_resize_lower: 26 img_rand_resize_upper: 30 }"
    for phase in (0, 1):
        layer = data_layer(source, 4, text, phase=phase)
        data, labels = layer.forward([])
        assert tuple(data.shape) == (4, 3, 24, 24) and labels.tolist() == [0, 1, 2, 3]


def test_a_mean_file_has_to_cover_the_crop(source, tmp_path):
    fields = f'crop_size: 24 img_rand_resize_lower: 26 img_rand_resize_upper: 30 mean_file: "{tmp_path / "mean"}"'
    write_mean(tmp_path / "mean", np.zeros((3, 24, 30)))
    assert data_layer(source, 4, f"transform_param {{ {fields} }}").forward([])[0].shape == (4, 3, 24, 24)
    write_mean(tmp_path / "mean", np.zeros((3, 23, 30)))
    with pytest.raises(DataError, match="the mean file has shape 3 x 23 x 30, and with a random size"):
        data_layer(source, 4, f"transform_param {{ {fields} }}")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("crop_size: 8 img_rand_resize_lower: 5", "img_rand_resize_lower and img_rand_resize_upper go together"),
        ("crop_size: 8 img_rand_resize_upper: 5", "img_rand_resize_lower and img_rand_resize_upper go together"),
        ("crop_size: 8 img_rand_resize_lower: 6 img_rand_resize_upper: 5", "img_rand_resize_upper is 5, less than"),
        ("crop_size: 8 img_rand_resize_lower: 6 img_rand_resize_upper: 4294967295", "at most 65536 pixels a side"),
        (
            "img_rand_resize_lower: 6 img_rand_resize_upper: 6",
            "img_rand_resize_lower gives each image a size of its own",
        ),
        ("crop_size: 8 rand_resize_ratio_upper: 2", "they go together, are at least 1"),
        ("crop_size: 8 rand_resize_ratio_lower: 0.5 rand_resize_ratio_upper: 2", "they go together, are at least 1"),
        ("crop_size: 8 rand_resize_ratio_lower: 1 rand_resize_ratio_upper: inf", "they go together, are at least 1"),
        ("crop_size: 8 vertical_stretch_lower: 0", "vertical_stretch_lower is 0 and must be above 0"),
        ("crop_size: 8 horizontal_stretch_upper: inf", "horizontal_stretch_upper is inf and must be above 0"),
        (
            "crop_size: 8 vertical_stretch_upper: 2 resize_param { height: 9 width: 9 }",
            "vertical_stretch_upper and resize_param exclude each other",
        ),
    ],
)
def test_fields_that_make_no_sense_are_refused(source, fields, message):
    with pytest.raises(NetError, match=message):
        data_layer(source, 4, f"transform_param {{ {fields} }}")


@pytest.mark.parametrize(
    "fields", ["allow_upscale: true", "interpolation_algo_up: INTER_AREA", "vertical_stretch_upper: 1"]
)
def test_fields_that_alone_change_nothing_are_named(source, caplog, fields):
    data_layer(source, 4, f"transform_param {{ crop_size: 8 {fields} }}").close()
    assert f"{fields.partition(':')[0]} has no effect without img_rand_resize_lower" in caplog.text
