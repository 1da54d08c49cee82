"""The nets of models/, as ONNX models, which become these nets again, and as modules of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from mgcaffe.engine.layer import TEST
from mgcaffe.engine.net import Net
from mgcaffe.prototxt import read_net_source
from mgcaffe.tools.convert.caffe_side import CaffeSide, fitting_inputs
from tests.support.paths import MODELS

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from tests.support.modulekit import module_differences
from tests.support.onnxkit import assert_same_net, differences, fill_at_random

pytestmark = pytest.mark.slow

TOLERANCE = 1e-4
DEPLOY_NETS = [pytest.param(path, id=path.parent.name) for path in sorted(MODELS.glob("*/deploy.prototxt"))]


@pytest.mark.parametrize("path", DEPLOY_NETS)
def test_a_deploy_net_gives_the_same_values(path, tmp_path):
    source = read_net_source(path)
    for shape in source.param.layer[0].input_param.shape:
        shape.dim[0] = 2
    net = Net(source.param, phase=TEST, sources=source, seed=1)
    fill_at_random(net)
    ours = CaffeSide(net).run(fitting_inputs(net))
    found = differences(net, tmp_path / "net.onnx", ours=ours)
    assert found[0].largest_relative <= TOLERANCE, found[0]
    assert_same_net(net, tmp_path / "net.onnx")
    fused = sum(layer.type == "BatchNorm" for layer in net.layers)  # with the Scale behind it
    found, _ = module_differences(net, ours, fused=fused)
    assert found[0].largest_relative <= TOLERANCE, found[0]
    # The noise has come through: these are no values that would agree whatever happens.
    assert all(np.ptp(ours[name]) > 0 for name in net.outputs)
