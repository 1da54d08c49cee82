"""Recurrent layers as scripts use them."""

import numpy as np
import pytest

import mgcaffe.pycaffe as caffe
from mgcaffe.pycaffe import layers as L


@pytest.fixture
def model(tmp_path):
    net = caffe.NetSpec()
    net.x = L.Input(input_param={"shape": {"dim": [4, 2, 3]}})
    net.cont = L.Input(input_param={"shape": {"dim": [4, 2]}})
    net.y = L.LSTM(
        net.x,
        net.cont,
        recurrent_param={"num_output": 5, "weight_filler": {"type": "uniform", "min": -0.5, "max": 0.5}},
    )
    path = tmp_path / "net.prototxt"
    path.write_text(f"force_backward: true\n{net.to_proto()}")
    return path


def test_blobs_parameters_and_gradients_are_there(model):
    net = caffe.Net(str(model), caffe.TRAIN)
    assert [blob.data.shape for blob in net.params["y"]] == [(20, 3), (20,), (20, 5)]
    net.blobs["x"].data[...] = np.linspace(-1, 1, 24).reshape(4, 2, 3)
    net.blobs["cont"].data[1:] = 1
    (y,) = net.forward().values()
    assert y.shape == (4, 2, 5)
    net.blobs["y"].diff[...] = 1
    net.clear_param_diffs()
    net.backward()
    assert np.abs(net.blobs["x"].diff).min(axis=(0, 1)).all()
    assert all(np.abs(blob.diff).sum() > 0 for blob in net.params["y"])


def test_weights_written_into_the_parameters_count(model):
    net = caffe.Net(str(model), caffe.TEST)
    net.blobs["x"].data[...] = 1
    before = net.forward()["y"].copy()
    net.params["y"][0].data[...] = 0
    assert not np.array_equal(net.forward()["y"], before)
    assert not net.forward()["y"].any()


def test_the_state_goes_on_from_call_to_call_and_ends_with_cont(model):
    net = caffe.Net(str(model), caffe.TEST)
    net.blobs["x"].data[...] = 0.5
    first = net.forward()["y"].copy()
    assert np.array_equal(net.forward()["y"], first)
    net.blobs["cont"].data[0, 1] = 1
    second = net.forward()["y"][0]
    assert np.array_equal(second[0], first[0, 0])
    assert not np.array_equal(second[1], first[0, 1])


def test_another_number_of_steps_and_streams_is_a_reshape_away(model):
    net = caffe.Net(str(model), caffe.TEST)
    net.forward()
    net.blobs["x"].reshape(7, 3, 3)
    net.blobs["cont"].reshape(7, 3)
    net.reshape()
    assert net.blobs["y"].data.shape == (7, 3, 5)
    assert net.forward()["y"].shape == (7, 3, 5)


def test_saved_weights_are_read_again(model, tmp_path):
    net, other = (caffe.Net(str(model), caffe.TEST) for _ in range(2))
    net.save(str(tmp_path / "a.caffemodel"))
    other.copy_from(str(tmp_path / "a.caffemodel"))
    for net_ in (net, other):
        net_.blobs["x"].data[...] = 0.25
    assert np.array_equal(net.forward()["y"], other.forward()["y"])
