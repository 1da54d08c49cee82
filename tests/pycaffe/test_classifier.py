"""Classifier and Detector."""

import numpy as np
import pytest
from PIL import Image

import mgcaffe.pycaffe as caffe
from mgcaffe.errors import UsageError
from tests.support.pycaffe_nets import DEPLOY, write


@pytest.fixture
def files(tmp_path):
    model, weights = write(tmp_path, DEPLOY), str(tmp_path / "weights.caffemodel")
    caffe.Net(model, caffe.TEST).save(weights)
    return model, weights


def test_predict_takes_the_centre_of_each_image(files):
    classifier = caffe.Classifier(*files, image_dims=(12, 12), raw_scale=255, mean=np.array([1.0, 2, 3]))
    images = [np.random.default_rng(seed).random((24, 24, 3)).astype(np.float32) for seed in range(3)]
    found = classifier.predict(images, oversample=False)
    assert found.shape == (3, 5)
    centre = caffe.io.resize_image(images[1], (12, 12))[2:10, 2:10]
    classifier.blobs["data"].data[0] = centre.transpose(2, 0, 1) * 255 - np.array([1, 2, 3])[:, None, None]
    np.testing.assert_allclose(classifier.forward()["prob"][0], found[1], rtol=1e-4, atol=1e-6)


def test_predict_averages_over_ten_crops(files):
    classifier = caffe.Classifier(*files, image_dims=(12, 12), channel_swap=(2, 1, 0), input_scale=0.1)
    image = np.random.default_rng(0).random((12, 12, 3)).astype(np.float32)
    found = classifier.predict([image])
    crops = caffe.io.oversample([image], (8, 8))
    prepared = np.stack([classifier.transformer.preprocess("data", crop) for crop in crops])
    expected = classifier.forward_all(data=prepared)["prob"].mean(axis=0)
    np.testing.assert_allclose(found, [expected], rtol=1e-5)


def test_image_dims_default_to_the_inputs_own(files):
    classifier = caffe.Classifier(*files)
    assert classifier.image_dims.tolist() == classifier.crop_dims.tolist() == [8, 8]
    assert classifier.predict([np.zeros((8, 8, 3))], oversample=False).sum() == pytest.approx(1, rel=1e-5)


def image_file(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    path = str(tmp_path / "image.png")
    Image.fromarray(pixels).save(path)
    return path


def test_detect_windows_scores_each_window(files, tmp_path):
    detector = caffe.Detector(*files, raw_scale=255)
    path = image_file(tmp_path)
    windows = [(0, 0, 8, 8), (4, 5, 16, 25), (0, 0, 20, 30), (1, 2, 3, 4), (5, 5, 13, 13)]
    found = detector.detect_windows([(path, windows)])
    assert len(found) == 5
    assert found[1]["filename"] == path
    assert found[1]["window"].tolist() == [4, 5, 16, 25]
    image = caffe.io.load_image(path)
    detector.blobs["data"].data[0] = 255 * image[5:13, 5:13].transpose(2, 0, 1)
    np.testing.assert_allclose(detector.forward()["prob"][0], found[4]["prediction"], rtol=1e-4, atol=1e-6)
    assert detector.detect_windows([(path, [])]) == []


def test_predict_over_crops_gives_vectors_also_where_the_output_has_four_axes(tmp_path):
    pool = """layer { name: "pool" type: "Pooling" bottom: "conv1" top: "pool"
      pooling_param { pool: AVE global_pooling: true } }"""
    text = DEPLOY[: DEPLOY.index('layer { name: "fc"')] + pool
    model, weights = write(tmp_path, text), str(tmp_path / "weights.caffemodel")
    caffe.Net(model, caffe.TEST).save(weights)
    classifier = caffe.Classifier(model, weights, image_dims=(12, 12))
    images = list(np.random.default_rng(0).random((2, 12, 12, 3)).astype(np.float32))
    assert classifier.predict(images, oversample=False).shape == (2, 4, 1, 1)
    found = classifier.predict(images)
    assert found.shape == (2, 4)
    crops = caffe.io.oversample(images[1:], (8, 8)).transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found[1], classifier.forward_all(data=crops)["pool"].mean(axis=0).ravel(), rtol=1e-5)


def test_without_a_context_a_window_ends_where_the_image_does(files):
    detector = caffe.Detector(*files, mean=np.array([1.0, 2, 3]))
    image = np.random.default_rng(0).random((20, 30, 3)).astype(np.float32)
    np.testing.assert_array_equal(detector.crop(image, (2, 3, 8, 5)), image[2:8, 3:5])
    np.testing.assert_array_equal(detector.crop(image, np.array((15, 20, 40, 50))), image[15:, 20:])
    np.testing.assert_array_equal(detector.crop(image, (-4, -1, 3, 2)), image[:3, :2])
    for window in ((20, 0, 30, 5), (4, 4, 4, 9)):
        with pytest.raises(ValueError, match="nothing of the image, which has 20 x 30 pixels"):
            detector.crop(image, window)


def caffes_context_crop(image, window, side, pad, mean):
    """What Caffe's Detector.crop computes, step by step; `mean` in the image's own space."""
    box, scale = np.array(window, float), side / (side - 2.0 * pad)
    half = (box[2:] - box[:2] + 1) / 2
    centre = box[:2] + half
    box = np.round(np.concatenate([centre - scale * half, centre + scale * half]))
    pixels = side / (box[2:] - box[:2] + 1)
    offset = [round(max(0, -edge) * each) for edge, each in zip(box[:2], pixels, strict=True)]
    box = np.clip(box, 0, [*image.shape[:2], *image.shape[:2]]).astype(int)
    size = [round(extent * each) for extent, each in zip(box[2:] - box[:2] + 1, pixels, strict=True)]
    size = [min(each, side - begin) for each, begin in zip(size, offset, strict=True)]
    result = np.ones((side, side, 3), np.float32) * mean
    part = caffe.io.resize_image(image[box[0] : box[2], box[1] : box[3]], size)
    result[offset[0] : offset[0] + size[0], offset[1] : offset[1] + size[1]] = part
    return result


def test_context_shows_what_lies_around_and_the_mean_beyond_the_edge(files):
    mean = np.random.default_rng(1).random((3, 8, 8)) * 3
    detector = caffe.Detector(*files, raw_scale=2.0, mean=mean, channel_swap=(2, 0, 1), context_pad=2)
    image = np.random.default_rng(0).random((20, 30, 3)).astype(np.float32)
    shown = mean[[1, 2, 0]].transpose(1, 2, 0) / 2
    for window in ((6, 6, 10, 10), (0, 0, 4, 4), (12, 3, 19, 29), (0, 0, 20, 30), (-3, 20, 5, 36), (18, 28, 20, 30)):
        found = detector.crop(image, window)
        assert found.shape == (8, 8, 3)
        np.testing.assert_allclose(found, caffes_context_crop(image, window, 8, 2, shown), rtol=1e-5, err_msg=window)
    corner = detector.transformer.preprocess("data", detector.crop(image, (0, 0, 4, 4)))
    np.testing.assert_allclose(corner[:, 0], 0, atol=1e-6)
    with pytest.raises(ValueError, match="context_pad 4 leaves nothing of the input's 8 x 8 pixels"):
        detector.configure_crop(4)


def test_a_context_without_a_mean_shows_black_and_one_channels_mean_everywhere(files):
    image = np.ones((20, 30, 3), np.float32)
    detector = caffe.Detector(*files, context_pad=2)
    assert (detector.crop(image, (0, 0, 4, 4))[0] == 0).all()
    detector = caffe.Detector(*files, mean=np.full((1, 8, 8), 5.0), context_pad=2)
    assert (detector.crop(image, (0, 0, 4, 4))[0] == 5).all()


def test_selective_search_says_what_it_needs(files):
    with pytest.raises(UsageError, match="selective_search_ijcv_with_python"):
        caffe.Detector(*files).detect_selective_search(["image.png"])
