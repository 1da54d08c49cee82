"""A net that scores images: the same as pycaffe's Classifier, and what it refuses."""

import numpy as np
import pytest
import torch
from PIL import Image

import mgcaffe.pycaffe as caffe
from mgcaffe.errors import DataError, NetError, UsageError
from mgcaffe.prototxt import BlobProto, fill_blob, parse_net
from mgcaffe.tools.classifier import ImageClassifier, Preparation, read_labels, read_mean
from tests.support.surgerykit import SMALL, full, layer, save_weights

# Without the Softmax, whose values are next to 0 and 1 here.
NET = SMALL[: SMALL.index('layer { name: "prob"')].replace("dim: 2 dim: 3", "dim: 1 dim: 3")
MEAN = np.arange(3 * 6 * 6, dtype=np.float32).reshape(3, 6, 6)


@pytest.fixture
def folder(tmp_path):
    """Three images and the weights of a net."""
    draw = np.random.default_rng(0)
    for number in range(3):
        Image.fromarray(draw.integers(0, 256, (12, 9, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
    (tmp_path / "net.prototxt").write_text(NET)
    save_weights(full(NET), tmp_path / "w")
    return tmp_path


def classifier(folder, preparation=None, text=NET, weights="w", **options):
    source = parse_net(text, file="net.prototxt")
    options = {"device": torch.device("cpu"), **options}
    return ImageClassifier(source, str(folder / weights), preparation or Preparation(), **options)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Preparation(), {"raw_scale": 255}),
        (Preparation(channel_swap=(2, 1, 0), mean=np.float32([3, 2, 1])),
         {"raw_scale": 255, "channel_swap": (2, 1, 0), "mean": np.float32([3, 2, 1])}),
        (Preparation(image_size=(8, 9), mean=MEAN, input_scale=0.5),
         {"raw_scale": 255, "image_dims": (8, 9), "mean": MEAN, "input_scale": 0.5}),
        (Preparation(image_size=(8, 9), mean=MEAN[:, :3, :2], raw_scale=2),
         {"raw_scale": 2, "image_dims": (8, 9), "mean": MEAN[:, :3, :2]}),
        (Preparation(image_size=(10, 7), oversample=True), {"raw_scale": 255, "image_dims": (10, 7)}),
    ],
)  # fmt: skip
def test_scores_are_those_of_pycaffes_classifier(folder, ours, theirs):
    paths = [str(folder / f"{number}.png") for number in range(3)]
    net = classifier(folder, ours)
    found = net.scores(paths)
    old = caffe.Classifier(str(folder / "net.prototxt"), str(folder / "w"), **theirs)
    expected = old.predict([caffe.io.load_image(path) for path in paths], oversample=ours.oversample)
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max(), rtol=1e-5)
    assert net.classes == 5 and found.shape == (3, 5)


def test_scores_that_are_not_finite_are_an_error(folder):
    net = full(NET)
    fill_blob(layer(net, "ip").blobs[1], np.full(5, np.nan, np.float32))
    save_weights(net, folder / "nan")
    with pytest.raises(DataError, match=r"0\.png: its scores \(blob 'ip'\) are not finite"):
        classifier(folder, weights="nan").scores([str(folder / "0.png")])


def test_many_images_run_in_several_batches(folder):
    paths = [str(folder / f"{number % 3}.png") for number in range(70)]
    found = classifier(folder).scores(paths)
    np.testing.assert_allclose(found, np.tile(found[:3], (24, 1))[:70], atol=1e-6 * np.abs(found).max(), rtol=1e-5)


def test_grey_nets_get_grey_images(folder):
    text = NET.replace("dim: 3 dim: 6", "dim: 1 dim: 6")
    save_weights(full(text), folder / "grey")
    path = str(folder / "0.png")
    found = classifier(folder, text=text, weights="grey").scores([path])
    (folder / "grey.prototxt").write_text(text)
    old = caffe.Classifier(str(folder / "grey.prototxt"), str(folder / "grey"), raw_scale=255)
    expected = old.predict([caffe.io.load_image(path, color=False)], oversample=False)
    np.testing.assert_allclose(found, expected, atol=1e-6 * np.abs(expected).max(), rtol=1e-5)


MORE = 'layer { name: "more" type: "AbsVal" bottom: "conv" top: "more" }'
TWO = 'layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 1 } } }'
TRAIN = 'layer { name: "d" type: "DummyData" top: "data" dummy_data_param { shape { dim: 1 dim: 3 dim: 6 dim: 6 } } }'


@pytest.mark.parametrize(
    ("text", "preparation", "options", "said"),
    [
        (NET + MORE, {}, {}, "has 2 outputs: ip, more"),
        (NET + MORE, {}, {"output": "ipp"}, "has no blob 'ipp'"),
        (NET + MORE, {}, {"output": "more"}, r"blob 'more' has shape \(1, 4, 4, 4\), not one score a class"),
        (NET + TWO, {}, {}, r"has 2 inputs \(data, in\)"),
        (TRAIN + NET[NET.index('layer { name: "conv"'):], {}, {}, "has no Input layer"),
        (NET.replace("dim: 3 dim: 6", "dim: 4 dim: 6"), {}, {}, "images need N x 3 x H x W"),
        (NET, {"image_size": (5, 9)}, {}, r"images of 5 x 9 \(--images_dim\) are smaller than the input, 6 x 6"),
        (NET, {"channel_swap": (2, 1)}, {}, "each of the channels 0 to 2 once"),
        (NET, {"mean": np.zeros(1)}, {}, "the mean has 1 channels, and the input 3"),
    ],
)  # fmt: skip
def test_nets_and_flags_that_do_not_fit(folder, text, preparation, options, said):
    with pytest.raises(UsageError, match=said):
        classifier(folder, Preparation(**preparation), text, **options)


def test_every_layer_needs_its_weights(folder):
    net = full(NET)
    del layer(net, "ip").blobs[:]
    save_weights(net, folder / "part")
    with pytest.raises(NetError, match=r"part has no weights for 1 layer\(s\) of net\.prototxt: ip"):
        classifier(folder, weights="part")


def test_images_that_cannot_be_read_are_named(folder):
    (folder / "bad.png").write_bytes((folder / "0.png").read_bytes()[:100])
    for name in ("bad.png", "absent.png", "w"):
        with pytest.raises(DataError, match=f"{name}: the image cannot be read"):
            classifier(folder).scores([str(folder / "0.png"), str(folder / name)])


def test_means_are_read_from_both_kinds_of_files(tmp_path):
    np.save(tmp_path / "m.npy", MEAN)
    np.testing.assert_array_equal(read_mean(str(tmp_path / "m.npy")), MEAN)
    blob = BlobProto()
    fill_blob(blob, MEAN[np.newaxis])
    (tmp_path / "m.binaryproto").write_bytes(blob.SerializeToString())
    np.testing.assert_array_equal(read_mean(str(tmp_path / "m.binaryproto")), MEAN)
    np.save(tmp_path / "v.npy", np.arange(3))
    assert read_mean(str(tmp_path / "v.npy")).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.zeros((2, 2)), "a mean is channels x height x width"),
        (np.array(["a"]), "a mean is channels"),
        (np.zeros((3, 0, 2)), "a mean is channels"),
        (np.array([np.nan]), "not finite"),
        (np.array([None]), "the mean cannot be read"),
    ],
)
def test_bad_means_are_named(tmp_path, value, said):
    np.save(tmp_path / "m.npy", value)
    with pytest.raises(DataError, match=said):
        read_mean(str(tmp_path / "m.npy"))
    with pytest.raises(DataError, match="the mean cannot be read"):
        read_mean(str(tmp_path / "absent.npy"))


def test_a_damaged_npy_file_is_named(tmp_path):
    path = tmp_path / "m.npy"
    np.save(path, MEAN)
    whole = path.read_bytes()
    np.savez(tmp_path / "m.npz", MEAN)
    huge = whole.replace(b"'shape': (", b"'shape': (99999999999, ", 1)
    for content in (
        whole.replace(b"}", b" ", 1),
        huge[:8] + (len(huge) - len(whole) + 118).to_bytes(2, "little") + huge[10:],
        (tmp_path / "m.npz").read_bytes(),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError, match="the mean cannot be read"):
            read_mean(str(path))


def test_labels_have_to_be_as_many_as_the_classes(tmp_path):
    path = tmp_path / "labels"
    path.write_text("n1 cat\nn2 dog\n\n")
    assert read_labels(str(path), 2) == ["n1 cat", "n2 dog"]
    with pytest.raises(DataError, match="labels: 2 labels, and the net has 3 classes"):
        read_labels(str(path), 3)
    with pytest.raises(DataError, match="absent: the labels cannot be read: No such file"):
        read_labels(str(tmp_path / "absent"), 3)
