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


def test_context_shows_what_lies_around_and_the_mean_beyond_the_edge(files):
    detector = caffe.Detector(*files, raw_scale=2.0, mean=np.array([1.0, 2, 3]), context_pad=2)
    image = np.random.default_rng(0).random((20, 30, 3)).astype(np.float32)
    np.testing.assert_allclose(detector.crop(image, (6, 6, 10, 10)), image[4:12, 4:12], rtol=1e-6)
    corner = detector.crop(image, (0, 0, 4, 4))
    np.testing.assert_allclose(corner[2:, 2:], image[:6, :6], rtol=1e-6)
    np.testing.assert_allclose(corner[:2], np.broadcast_to([0.5, 1, 1.5], (2, 8, 3)))
    prepared = detector.transformer.preprocess("data", corner)
    np.testing.assert_allclose(prepared[:, :2], 0, atol=1e-6)


def test_selective_search_says_what_it_needs(files):
    with pytest.raises(UsageError, match="selective_search_ijcv_with_python"):
        caffe.Detector(*files).detect_selective_search(["image.png"])
