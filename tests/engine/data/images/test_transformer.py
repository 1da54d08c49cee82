"""The transformation of a batch, against the formula written out pixel by pixel."""

import numpy as np
import pytest

from mgcaffe.engine.data.batches import BatchForm
from mgcaffe.engine.data.images.transformer import Misfit, Transformer
from mgcaffe.errors import DataError, NetError
from mgcaffe.prototxt import BlobProto
from mgcaffe.prototxt.blobs import fill_blob
from tests.support.datakit import data_layer, datum, images, write_lmdb, write_mean

FORM = BatchForm(np.dtype(np.float64), stream=77)
POSITIONS = [5, 3, 1000, 7, 8, 9, 10, 2**40]


def run(transformer, pixels, records=POSITIONS, form=FORM):
    return transformer(list(pixels), records[: len(pixels)], form, str)


def find_window(image, window):
    """Top, left and mirror flag of the place in `image` that looks like `window`."""
    height, width = window.shape[1:]
    places = [
        (top, left, mirrored)
        for top in range(image.shape[1] - height + 1)
        for left in range(image.shape[2] - width + 1)
        for mirrored in (False, True)
        if np.array_equal(image[:, top : top + height, left : left + width][:, :, :: -1 if mirrored else 1], window)
    ]
    assert len(places) == 1
    return places[0]


def test_without_fields_the_pixels_come_through():
    pixels = images(4)
    np.testing.assert_array_equal(run(Transformer(), pixels), pixels)


def test_mean_values_and_scale():
    pixels = images(4)
    mean = np.array([104.0, 117.0, 123.0])
    expected = (pixels - mean[:, None, None]) * 0.25
    np.testing.assert_array_equal(run(Transformer(mean=mean, scale=0.25), pixels), expected)
    np.testing.assert_array_equal(run(Transformer(mean=mean[:1]), pixels), pixels - 104.0)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 7])
def test_crop_mirror_and_mean_file_use_the_same_window(channels, channels_last):
    pixels = images(8, (channels, 9, 11))
    mean = np.random.default_rng(1).random((channels, 9, 11))
    form = BatchForm(np.dtype(np.float64), channels_last, stream=77)
    options = {"crop_size": 6, "mirror": True, "random_crop": True}
    windows = run(Transformer(**options), pixels, form=form)
    found = run(Transformer(**options, mean=mean, scale=0.5), pixels, form=form)
    places = [find_window(image, window) for image, window in zip(pixels, windows, strict=True)]
    assert len(set(places)) > 4
    for (top, left, mirrored), image, result in zip(places, pixels, found, strict=True):
        window = ((image - mean) * 0.5)[:, top : top + 6, left : left + 6]
        np.testing.assert_array_equal(result, window[:, :, ::-1] if mirrored else window)


def test_random_numbers_depend_on_record_and_stream_only():
    pixels = np.repeat(images(1, (1, 30, 30)), 8, axis=0)
    transformer = Transformer(crop_size=8, mirror=True, random_crop=True)
    together = run(transformer, pixels)
    for number, record in enumerate(POSITIONS):
        np.testing.assert_array_equal(run(transformer, pixels[:1], [record])[0], together[number])
    other = run(transformer, pixels, form=BatchForm(np.dtype(np.float64), stream=78))
    assert not np.array_equal(other, together)


def test_crops_reach_every_offset_and_half_of_the_records_are_mirrored():
    pixels = np.repeat(np.arange(20, dtype=np.uint8).reshape(1, 1, 4, 5), 3000, axis=0)
    found = run(Transformer(crop_size=2, mirror=True, random_crop=True), pixels, list(range(3000)))
    firsts = found[:, 0, 0].min(axis=1).astype(int)
    counts = np.bincount(firsts, minlength=20)
    offsets = [top * 5 + left for top in range(3) for left in range(4)]
    assert counts.sum() == counts[offsets].sum() == 3000
    assert counts[offsets].min() > 180
    assert counts[offsets].max() < 330
    assert 1380 < (found[:, 0, 0, 0] > found[:, 0, 0, 1]).sum() < 1620


def test_float_images_are_not_rounded():
    pixels = np.random.default_rng(0).random((2, 1, 3, 3), dtype=np.float32)
    np.testing.assert_array_equal(run(Transformer(), pixels), pixels)


def test_large_batches_are_the_sum_of_their_chunks(monkeypatch):
    pixels = images(8)
    transformer = Transformer(mean=np.array([3.0]), mirror=True)
    expected = run(transformer, pixels)
    monkeypatch.setattr("mgcaffe.engine.data.images.transformer._VALUES_AT_ONCE", 3 * 144)
    np.testing.assert_array_equal(run(transformer, pixels), expected)


def test_misfits_name_the_field():
    for transformer, field in [
        (Transformer(crop_size=7), "crop_size"),
        (Transformer(mean=np.zeros((3, 5, 8))), "mean_file"),
        (Transformer(mean=np.zeros(2)), "mean_value"),
    ]:
        with pytest.raises(Misfit) as caught:
            transformer.output_shape((3, 6, 8))
        assert caught.value.field == field


def test_a_later_image_that_does_not_fit_is_described():
    with pytest.raises(DataError, match=r"^1: crop_size 6 is larger than the image, 5 x 9"):
        run(Transformer(crop_size=6), [np.zeros((1, 6, 6), np.uint8), np.zeros((1, 5, 9), np.uint8)])


# -- the fields of transform_param -----------------------------------------------------------------------


@pytest.mark.parametrize("axes", [3, 4])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_mean_file_is_subtracted_before_scaling(tmp_path, channels, axes):
    pixels = images(2, (channels, 6, 8))
    mean = np.random.default_rng(2).random(pixels.shape[1:]).astype(np.float32)
    blob = BlobProto()
    fill_blob(blob, mean.reshape((1,) * (axes - 3) + mean.shape))
    (tmp_path / "mean").write_bytes(blob.SerializeToString())
    source = write_lmdb(tmp_path / "records", [datum(image) for image in pixels])
    layer = data_layer(source, 2, f'transform_param {{ mean_file: "{tmp_path / "mean"}" scale: 0.5 }}')
    np.testing.assert_array_equal(layer.forward([])[0].numpy(), (pixels.astype(np.float32) - mean) * 0.5)
    layer.close()


@pytest.mark.parametrize(
    ("fields", "message", "error"),
    [
        ('mean_file: "nowhere"', r"mean file 'nowhere' does not exist \(layer '[^']*', type \w+\)(\n|$)", DataError),
        ('mean_file: "{bad}"', "is no mean file", DataError),
        ('mean_file: "{two}"', r"mean file '.*two' has shape \(2, 3, 6, 8\), not that of one image", DataError),
        ('mean_file: "{small}"', "mean file has shape 3 x 5 x 8.*before cropping.*3 x 6 x 8", DataError),
        ("mean_value: 1 mean_value: 2", "mean_value is given 2 times, but images have 3", DataError),
        ("crop_size: 7", "crop_size 7 is larger than the image, 6 x 8", DataError),
        ('mean_file: "{small}" mean_value: 1', "exclude each other", NetError),
        ("force_color: true force_gray: true", "exclude each other", NetError),
        ("distort_param {{ }}", "distort_param is a field of another Caffe", NetError),
        ("pad: 3", "pad is a field of another Caffe", NetError),
    ],
)
def test_fields_that_do_not_fit_are_refused(source, tmp_path, fields, message, error):
    (tmp_path / "bad").write_bytes(b"\xff\xff")
    write_mean(tmp_path / "small", np.zeros((3, 5, 8)))
    fill_blob(two := BlobProto(), np.zeros((2, 3, 6, 8), np.float32))
    (tmp_path / "two").write_bytes(two.SerializeToString())
    fields = fields.format(bad=tmp_path / "bad", small=tmp_path / "small", two=tmp_path / "two")
    with pytest.raises(error, match=message):
        data_layer(source, 2, f"transform_param {{ {fields} }}")


@pytest.mark.parametrize("crop", ["", "crop_size: 4"])
def test_a_test_net_mirrors_too_but_crops_the_centre(tmp_path, crop):
    pixels = np.repeat(images(1, (1, 6, 8)), 40, axis=0)
    folder = write_lmdb(tmp_path / "db", [datum(image) for image in pixels])
    layer = data_layer(folder, 40, f"transform_param {{ mirror: true {crop} }}", phase=1)
    found = layer.forward([])[0].numpy()
    layer.close()
    plain = pixels[0][:, 1:5, 2:6] if crop else pixels[0]
    mirrored = [np.array_equal(image, plain[:, :, ::-1]) for image in found]
    assert all(np.array_equal(image, plain) for image, flag in zip(found, mirrored, strict=True) if not flag)
    assert 8 < sum(mirrored) < 32
