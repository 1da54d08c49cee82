"""Whole nets: those whose values a real Caffe recorded, run by onnxruntime, and brought back to nets."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from mgcaffe.engine.layer import TEST
from mgcaffe.engine.net import Net
from mgcaffe.prototxt import read_net_source
from mgcaffe.tools.convert.onnx_side import OnnxSide
from tests.support.golden import LAYERS, NAMES, fill, read_test_net
from tests.support.onnxkit import assert_same_net, differences, write
from tests.support.paths import MODELS

pytestmark = pytest.mark.slow

TOLERANCE = 1e-4


def read(path):
    source = read_net_source(path)
    return Net(source.param, phase=TEST, sources=source, seed=1)


@pytest.mark.parametrize("name", NAMES)
def test_onnxruntime_gives_what_caffe_recorded(name, tmp_path):
    net, case, outputs = read_test_net(name)
    fill(net, case)
    write(net, tmp_path / "net.onnx", allow={"carried_state"})
    assert_same_net(net, tmp_path / "net.onnx")
    fed = {key.removeprefix("in/"): values for key, values in case.items() if key.startswith("in/")}
    values = OnnxSide(tmp_path / "net.onnx").run(fed)
    for blob in outputs:
        expected = case[f"out/{blob}"]
        assert values[blob].shape == expected.shape
        apart = np.abs(values[blob] - expected).max()
        assert apart <= TOLERANCE * max(np.abs(expected).max(), 1e-30), (blob, apart)


def test_the_net_of_the_golden_solvers_gives_the_same_values(tmp_path):
    """It is a training net; its data layer becomes an input, as in a deploy net."""
    source = read_net_source(LAYERS.parent / "solvers" / "net.prototxt")
    for layer in source.param.layer:
        if layer.type == "HDF5Data":
            layer.type = "Input"
            layer.ClearField("hdf5_data_param")
            layer.input_param.shape.add(dim=(4, 6))
            layer.input_param.shape.add(dim=(4,))
    net = Net(source.param, phase=TEST, sources=source, seed=1)
    found = differences(net, tmp_path / "net.onnx")
    assert {each.name for each in found} >= {"ip1", "ip2", "loss", "accuracy"}
    assert found[0].largest_relative <= 1e-5


def test_the_written_file_is_what_protobuf_would_write(tmp_path):
    """The arrays are written by hand, so the whole is compared with protobuf's own form of the same model."""
    net = read(MODELS / "lenet" / "deploy.prototxt")
    model = write(net, tmp_path / "net.onnx")
    assert len(model.SerializeToString()) == (tmp_path / "net.onnx").stat().st_size
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for layer in net.layers:
        for number, parameter in enumerate(layer.parameters):
            np.testing.assert_array_equal(arrays[f"{layer.name}/{number}"], parameter.data)
