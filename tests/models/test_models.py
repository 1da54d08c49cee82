"""The nets of models/ are the published ones: layers, names, shapes, parameter counts, solvers."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mgcaffe.prototxt import read_net, read_solver
from models import generate
from tests.support.paths import MODELS
from tests.support.shapes import TEST, TRAIN, Shape, Shapes, infer, layers_of


class Published(NamedTuple):
    """What is known of a net.

    image: (channels, height, width).
    parameters: of the training net and the deployed one.
    macs: million multiply-adds an image, of both.
    layers: while training, while testing, deployed.
    """

    image: Shape
    parameters: tuple[int, int]
    macs: tuple[float, float]
    layers: tuple[int, int, int]


NETS = {
    "lenet": Published((1, 28, 28), (431_080,) * 2, (2.29,) * 2, (9, 10, 9)),
    "cifar10_quick": Published((3, 32, 32), (145_578,) * 2, (12.35,) * 2, (13, 14, 13)),
    "cifar10_full": Published((3, 32, 32), (89_578,) * 2, (12.30,) * 2, (14, 15, 14)),
    "alexnet": Published((3, 227, 227), (60_965_224,) * 2, (724,) * 2, (24, 25, 24)),
    "googlenet": Published((3, 224, 224), (13_378_280, 6_998_552), (1591, 1583), (159, 165, 143)),
    "resnet50": Published((3, 224, 224), (25_557_096,) * 2, (3858,) * 2, (229, 231, 229)),
}

# Sides of square maps, by blob.
MAPS = {
    "lenet": {"conv1": 24, "pool1": 12, "conv2": 8, "pool2": 4},
    "cifar10_quick": {"pool1": 16, "pool2": 8, "pool3": 4},
    "cifar10_full": {"pool1": 16, "pool2": 8, "pool3": 4},
    "alexnet": {"conv1": 55, "pool1": 27, "conv2": 27, "pool2": 13, "conv5": 13, "pool5": 6},
    "googlenet": {
        "pool1/3x3_s2": 56,
        "pool2/3x3_s2": 28,
        "inception_3b/output": 28,
        "pool3/3x3_s2": 14,
        "inception_4e/output": 14,
        "loss1/ave_pool": 4,
        "loss2/ave_pool": 4,
        "pool4/3x3_s2": 7,
        "pool5/7x7_s1": 1,
    },
    "resnet50": {"pool1": 56, "res2c": 56, "res3d": 28, "res4f": 14, "res5c": 7, "pool5": 1},
}


def read(name: str, file: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return read_net(MODELS / name / f"{file}.prototxt", strict=True)


def train_shapes(name: str, phase: int = TRAIN) -> Shapes:
    return infer(read(name, "train_val"), phase, NETS[name].image)


def deploy_shapes(name: str) -> Shapes:
    return infer(read(name, "deploy"), TEST)


@pytest.mark.parametrize("name", NETS)
def test_parameter_counts_are_the_published_ones(name: str) -> None:
    counts = (train_shapes(name).parameter_count, deploy_shapes(name).parameter_count)
    assert counts == NETS[name].parameters


def test_resnet50_has_the_published_number_of_statistics() -> None:
    assert train_shapes("resnet50").statistics_count == 53_173


@pytest.mark.parametrize("name", NETS)
def test_multiply_adds_are_the_published_ones(name: str) -> None:
    train, deploy = train_shapes(name), deploy_shapes(name)
    per_image = [shapes.macs / shapes.blobs["data"][0] / 1e6 for shapes in (train, deploy)]
    # Published to three or four digits.
    assert per_image == pytest.approx(NETS[name].macs, rel=2e-3)


@pytest.mark.parametrize("name", NETS)
def test_layer_counts_are_the_published_ones(name: str) -> None:
    train_val, deploy = read(name, "train_val"), read(name, "deploy")
    counts = (len(layers_of(train_val, TRAIN)), len(layers_of(train_val, TEST)), len(deploy.layer))
    assert counts == NETS[name].layers


@pytest.mark.parametrize("name", NETS)
def test_pooling_rounds_up_to_the_published_map_sizes(name: str) -> None:
    blobs = train_shapes(name).blobs
    assert {blob: blobs[blob][2:] for blob in MAPS[name]} == {blob: (side, side) for blob, side in MAPS[name].items()}


@pytest.mark.parametrize("name", NETS)
def test_weights_of_a_training_net_fit_the_deployed_one(name: str) -> None:
    train, deploy = train_shapes(name), deploy_shapes(name)
    heads = ("loss1/", "loss2/")
    main = {layer: shapes for layer, shapes in train.parameters.items() if not layer.startswith(heads)}
    assert list(main.items()) == list(deploy.parameters.items())
    assert train.statistics == deploy.statistics
    classes = 1000 if NETS[name].image[1] > 100 else 10
    assert deploy.blobs["prob"] == (deploy.blobs["data"][0], classes)


@pytest.mark.parametrize("name", NETS)
def test_training_and_testing_nets_share_all_parameters(name: str) -> None:
    assert train_shapes(name, TRAIN).parameters == train_shapes(name, TEST).parameters


def test_googlenet_has_two_auxiliary_losses_of_weight_three_tenths() -> None:
    losses = {
        layer.name: (list(layer.top), list(layer.loss_weight))
        for layer in read("googlenet", "train_val").layer
        if layer.type == "SoftmaxWithLoss"
    }
    assert losses == {
        "loss1/loss": (["loss1/loss1"], [pytest.approx(0.3)]),
        "loss2/loss": (["loss2/loss1"], [pytest.approx(0.3)]),
        "loss3/loss3": (["loss3/loss3"], [1]),
    }


@pytest.mark.parametrize("name", NETS)
def test_solver_names_its_own_net_and_tests_whole_batches(name: str) -> None:
    solver = read_solver(MODELS / name / "solver.prototxt", strict=True)
    assert solver.net == f"models/{name}/train_val.prototxt"
    assert solver.snapshot_prefix == f"models/{name}/{name}"
    (source,) = (layer for layer in layers_of(read(name, "train_val"), TEST) if layer.type == "Data")
    test_set = 50_000 if NETS[name].image[1] > 100 else 10_000
    assert solver.test_iter[0] * source.data_param.batch_size == test_set


@pytest.mark.parametrize("path", generate.files(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_generated_files_are_what_the_generator_writes(path: Path) -> None:
    assert path.read_text() == generate.files()[path]
