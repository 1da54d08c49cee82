"""caffe.io: messages, images and the Transformer."""

import io as bytes_io

import numpy as np
import pytest
from PIL import Image

import mgcaffe.pycaffe as caffe
from mgcaffe.errors import DataError
from mgcaffe.pycaffe.proto import caffe_pb2


def test_a_blob_of_the_old_form():
    blob = caffe_pb2.BlobProto(num=1, channels=2, height=3, width=4, data=np.zeros(24))
    assert caffe.io.blobproto_to_array(blob).shape == (1, 2, 3, 4)


def test_a_blob_of_the_new_form():
    blob = caffe_pb2.BlobProto(data=np.arange(6), shape=caffe_pb2.BlobShape(dim=[2, 3]))
    np.testing.assert_array_equal(caffe.io.blobproto_to_array(blob), [[0, 1, 2], [3, 4, 5]])


def test_a_blob_without_a_shape_is_refused():
    with pytest.raises(ValueError, match="values"):
        caffe.io.blobproto_to_array(caffe_pb2.BlobProto(data=np.zeros(10)))


def test_a_blob_of_one_number():
    blob = caffe_pb2.BlobProto(data=[3])
    assert caffe.io.blobproto_to_array(blob) == 3
    assert caffe.io.blobproto_to_array(blob).shape == ()


def test_arrays_become_blobs_and_back():
    array, diff = np.random.default_rng(0).standard_normal((2, 3, 5, 6, 7))[:2].astype(np.float32)
    blob = caffe.io.array_to_blobproto(array, diff)
    assert caffe.io.blobproto_to_array(blob).dtype == caffe.io.blobproto_to_array(blob, True).dtype == np.float64
    np.testing.assert_array_equal(caffe.io.blobproto_to_array(blob), array)
    np.testing.assert_array_equal(caffe.io.blobproto_to_array(blob, return_diff=True), diff)
    text = caffe.io.arraylist_to_blobprotovector_str([array, diff])
    for found, expected in zip(caffe.io.blobprotovector_str_to_arraylist(text), (array, diff), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_arrays_become_datums_and_back(dtype):
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    datum = caffe.io.array_to_datum(array, label=7)
    assert (datum.label, bool(datum.data)) == (7, dtype == np.uint8)
    found = caffe.io.datum_to_array(datum)
    assert found.dtype == (np.uint8 if dtype == np.uint8 else np.float64)
    np.testing.assert_array_equal(found, array)


def test_a_datum_without_a_label_has_none_set():
    datum = caffe.io.array_to_datum(np.ones((10, 10, 3), np.uint8), None)
    assert not datum.HasField("label")
    with pytest.raises(ValueError, match="3 axes"):
        caffe.io.array_to_datum(np.ones((10, 10)))
    with pytest.raises(ValueError, match="10 x 10 x 3"):
        datum.data = datum.data[:-1]
        caffe.io.datum_to_array(datum)


@pytest.mark.parametrize("label", [3, 3.0, np.int64(3), np.float32(3), np.array(3)])
def test_a_label_may_be_any_whole_number(label):
    assert caffe.io.array_to_datum(np.ones((1, 2, 2), np.uint8), label).label == 3


@pytest.mark.parametrize("label", [0.7, np.float32(2.5), float("nan"), float("inf"), "3", "cat", [1, 2]])
def test_a_label_that_is_no_whole_number_is_refused(label):
    with pytest.raises(TypeError, match="a Datum's label is a whole number, not"):
        caffe.io.array_to_datum(np.ones((1, 2, 2), np.uint8), label)


def test_an_encoded_datum_is_decoded():
    file = bytes_io.BytesIO()
    Image.fromarray(np.full((4, 5, 3), (255, 0, 9), np.uint8)).save(file, "PNG")
    array = caffe.io.datum_to_array(caffe_pb2.Datum(encoded=True, data=file.getvalue()))
    assert array.shape == (3, 4, 5)
    assert array[:, 0, 0].tolist() == [9, 0, 255]


# -- images --------------------------------------------------------------------------------------------------


def test_load_image_gives_rgb_from_0_to_1(tmp_path):
    pixels = np.zeros((4, 6, 3), np.uint8)
    pixels[1, 2] = (255, 51, 0)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    image = caffe.io.load_image(str(tmp_path / "a.png"))
    assert (image.shape, image.dtype) == ((4, 6, 3), np.float32)
    np.testing.assert_allclose(image[1, 2], [1, 0.2, 0], atol=1e-6)
    grey = caffe.io.load_image(str(tmp_path / "a.png"), color=False)
    assert grey.shape == (4, 6, 1)
    np.testing.assert_allclose(grey[1, 2], 0.2125 + 0.2 * 0.7154, atol=1e-6)


def test_load_image_of_other_kinds(tmp_path):
    Image.fromarray(np.full((4, 6), 51, np.uint8)).save(tmp_path / "grey.png")
    np.testing.assert_allclose(caffe.io.load_image(tmp_path / "grey.png"), np.full((4, 6, 3), 0.2), atol=1e-6)
    assert caffe.io.load_image(tmp_path / "grey.png", color=False).shape == (4, 6, 1)
    Image.fromarray(np.full((4, 6, 4), 102, np.uint8)).save(tmp_path / "alpha.png")
    np.testing.assert_allclose(caffe.io.load_image(tmp_path / "alpha.png"), np.full((4, 6, 3), 0.4), atol=1e-6)
    Image.fromarray(np.full((4, 6), 65535, np.uint16)).save(tmp_path / "deep.png")
    np.testing.assert_allclose(caffe.io.load_image(tmp_path / "deep.png"), np.ones((4, 6, 3)))
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(DataError, match=r"text\.png"):
        caffe.io.load_image(tmp_path / "text.png")
    with pytest.raises(OSError, match=r"nowhere\.png: the image cannot be read: No such file"):
        caffe.io.load_image(tmp_path / "nowhere.png")


@pytest.mark.parametrize("order", [0, 1, 3])
def test_resize_image_keeps_what_is_constant_and_what_has_the_size(order):
    flat = np.full((5, 7, 3), 3.25)
    assert np.allclose(caffe.io.resize_image(flat, (11, 4), order), 3.25)
    image = np.random.default_rng(0).standard_normal((5, 7, 2)).astype(np.float32)
    np.testing.assert_allclose(caffe.io.resize_image(image, (5, 7), order), image, rtol=1e-6)


def test_resize_image_interpolates_between_pixel_centres():
    ramp = np.arange(4.0)[np.newaxis, :, np.newaxis]
    found = caffe.io.resize_image(ramp, (1, 8))[0, :, 0]
    np.testing.assert_allclose(found, [0, 0.25, 0.75, 1.25, 1.75, 2.25, 2.75, 3])
    np.testing.assert_allclose(caffe.io.resize_image(ramp, (1, 2))[0, :, 0], [0.5, 2.5])
    np.testing.assert_allclose(caffe.io.resize_image(ramp, (1, 8), 0)[0, :, 0], [0, 0, 1, 1, 2, 2, 3, 3])
    with pytest.raises(ValueError, match="interp_order"):
        caffe.io.resize_image(ramp, (1, 8), 2)


def test_oversample_gives_corners_centre_and_their_mirror_images():
    images = np.random.default_rng(0).random((2, 5, 6, 3))
    crops = caffe.io.oversample(images, (3, 4))
    assert (crops.shape, crops.dtype) == ((20, 3, 4, 3), np.float32)
    image = images[1].astype(np.float32)
    for index, (y, x) in enumerate([(0, 0), (0, 2), (2, 0), (2, 2), (1, 1)]):
        plain = image[y : y + 3, x : x + 4]
        np.testing.assert_array_equal(crops[10 + index], plain)
        np.testing.assert_array_equal(crops[15 + index], plain[:, ::-1])
    with pytest.raises(ValueError, match="do not fit"):
        caffe.io.oversample(images, (6, 4))


# -- Transformer ---------------------------------------------------------------------------------------------


def transformer():
    made = caffe.io.Transformer({"data": (10, 3, 4, 5)})
    made.set_transpose("data", (2, 0, 1))
    made.set_channel_swap("data", (2, 1, 0))
    made.set_raw_scale("data", 255)
    made.set_mean("data", np.array([10.0, 20, 30]))
    made.set_input_scale("data", 0.5)
    return made


def test_preprocess_does_the_steps_in_caffes_order():
    image = np.random.default_rng(0).random((4, 5, 3)).astype(np.float32)
    found = transformer().preprocess("data", image)
    expected = (image.transpose(2, 0, 1)[::-1] * 255 - np.array([10, 20, 30])[:, None, None]) * 0.5
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_preprocess_and_deprocess_stay_in_float32_as_caffe_does_in_place():
    image = np.random.default_rng(0).random((4, 5, 3)).astype(np.float32)
    made = transformer()
    found = made.preprocess("data", image)
    expected = np.ascontiguousarray(image.transpose(2, 0, 1)[::-1])
    expected *= 255
    expected -= made.mean["data"]
    expected *= 0.5
    assert found.dtype == made.deprocess("data", found).dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def test_preprocess_resizes_first():
    image = np.random.default_rng(0).random((8, 10, 3)).astype(np.float32)
    small = caffe.io.resize_image(image, (4, 5))
    np.testing.assert_array_equal(transformer().preprocess("data", image), transformer().preprocess("data", small))


def test_deprocess_undoes_preprocess():
    image = np.random.default_rng(0).random((4, 5, 3)).astype(np.float32)
    made = transformer()
    np.testing.assert_allclose(made.deprocess("data", made.preprocess("data", image)[None]), image, atol=1e-5)


def test_a_transformer_without_settings_changes_nothing():
    image = np.random.default_rng(0).random((4, 5, 3)).astype(np.float32)
    made = caffe.io.Transformer({"data": (1, 3, 4, 5)})
    np.testing.assert_array_equal(made.preprocess("data", image), image)
    np.testing.assert_array_equal(made.deprocess("data", image), image)


def test_a_mean_of_rows_and_columns_alone_is_that_of_one_channel():
    made = caffe.io.Transformer({"data": (1, 1, 4, 5)})
    made.set_transpose("data", (2, 0, 1))
    mean = np.arange(20.0).reshape(4, 5)
    made.set_mean("data", mean)
    np.testing.assert_array_equal(made.preprocess("data", np.zeros((4, 5, 1))), -mean[np.newaxis])


def test_a_mean_image_is_resized_to_the_input():
    made = caffe.io.Transformer({"data": (1, 3, 4, 5)})
    made.set_transpose("data", (2, 0, 1))
    made.set_mean("data", np.full((3, 8, 10), 7.0))
    np.testing.assert_allclose(made.preprocess("data", np.zeros((4, 5, 3))), np.full((3, 4, 5), -7), rtol=1e-6)


@pytest.mark.parametrize("size", [(4, 5), (8, 10)])
def test_a_mean_of_one_channel_is_taken_off_all(size):
    made = caffe.io.Transformer({"data": (1, 3, 4, 5)})
    made.set_transpose("data", (2, 0, 1))
    made.set_mean("data", np.linspace(0, 1, size[0] * size[1]).reshape(1, *size))
    found = made.preprocess("data", np.zeros((4, 5, 3)))
    assert found.shape == (3, 4, 5)
    mean = np.linspace(0, 1, size[0] * size[1]).reshape(*size, 1)
    np.testing.assert_allclose(found[1], -caffe.io.resize_image(mean, (4, 5))[:, :, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("setter", "value", "message"),
    [
        ("set_transpose", (1, 0), "order"),
        ("set_channel_swap", (1, 0), "channels"),
        ("set_mean", np.zeros(2), "channel"),
        ("set_mean", np.zeros((1, 3, 4, 5)), "does not fit"),
        ("set_mean", np.zeros((2, 4, 5)), "does not fit"),
        ("set_mean", np.zeros((4, 5)), "does not fit"),
    ],
)
def test_settings_that_do_not_fit_are_refused(setter, value, message):
    made = caffe.io.Transformer({"data": (10, 3, 4, 5)})
    with pytest.raises(ValueError, match=message):
        getattr(made, setter)("data", value)
    with pytest.raises(ValueError, match="none of the net's inputs"):
        getattr(made, setter)("image", value)
