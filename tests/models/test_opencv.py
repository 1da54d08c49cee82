"""Weights written here mean the same to an independent reader of Caffe's models: OpenCV computes the same outputs.

OpenCV comes with the extra `opencv`; without it these tests are skipped.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from mgcaffe.engine.net import TEST, Net
from mgcaffe.prototxt import read_net, write_binary
from tests.support.paths import MODELS

pytestmark = pytest.mark.slow

cv2 = pytest.importorskip("cv2")
BATCH = 2
# Each net, and its last blob before the softmax.
NETS = {"lenet": "ip2", "cifar10_full": "ip1", "alexnet": "fc8", "googlenet": "loss3/classifier", "resnet50": "fc1000"}
# BatchNorm stores sums of this many statistics.
STATISTICS = 3.5


def trained(name: str) -> Net:
    """The deployed net as training might have left it, after a forward pass on noise."""
    param = read_net(MODELS / name / "deploy.prototxt")
    param.layer[0].input_param.shape[0].dim[0] = BATCH
    net = Net(param, phase=TEST, seed=1)
    generator = torch.Generator().manual_seed(2)
    net.blobs["data"].data.normal_(generator=generator)
    for node in net.nodes:
        values = [parameter.data for parameter in node.layer.parameters]
        if node.layer.type == "BatchNorm":
            variance, mean = torch.var_mean(node.bottoms[0].data, (0, 2, 3))
            for stored, statistic in zip(values, (mean, variance, torch.ones(1)), strict=True):
                stored.copy_(statistic * STATISTICS)
        elif node.layer.type == "Scale":
            values[0].uniform_(0.5, 1.5, generator=generator)
            values[1].normal_(std=0.2, generator=generator)
        elif values:
            fan_in = math.prod(values[0].shape[1:])
            values[0].normal_(std=math.sqrt(2 / fan_in), generator=generator)
            for bias in values[1:]:
                bias.normal_(std=0.2, generator=generator)
        net.forward(node.index, node.index + 1)
    return net


@pytest.mark.parametrize("name", NETS)
def test_opencv_computes_the_same_outputs_from_our_weights(name: str, tmp_path: Path) -> None:
    net = trained(name)
    weights = tmp_path / "net.caffemodel"
    write_binary(net.to_proto(), weights)
    reader = cv2.dnn.readNetFromCaffe(str(MODELS / name / "deploy.prototxt"), str(weights))
    reader.setInput(net.blobs["data"].data.numpy(), "data")
    scores, outputs = reader.forward([NETS[name], "prob"])

    expected = net.blobs["prob"].data.numpy()
    assert np.ptp(expected, axis=1).min() > 0.01, "the classes must differ, or the comparison says nothing"
    assert np.abs(outputs.reshape(expected.shape) - expected).max() < 1e-4
    expected = net.blobs[NETS[name]].data.numpy()
    assert np.abs(scores.reshape(expected.shape) - expected).max() < 1e-4 * np.abs(expected).max()
