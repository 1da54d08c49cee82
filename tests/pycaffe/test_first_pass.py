"""Passes over a part of a net before any other has run: they take what lies in the blobs."""

import numpy as np
import pytest

import mgcaffe.pycaffe as caffe
from tests.support.pycaffe_nets import SIMPLE, net


@pytest.fixture
def simple(tmp_path):
    caffe.set_random_seed(1)
    return net(tmp_path, SIMPLE)


def test_forward_of_a_range_before_any_forward_takes_what_lies_in_the_blobs(simple):
    simple.params["ip"][1].data[...] = range(13)
    found = simple.forward(start="ip")
    np.testing.assert_array_equal(simple.blobs["ip_blob"].data, [range(13)] * 5)
    np.testing.assert_allclose(found["loss"], np.log(np.exp(np.arange(13)).sum()), rtol=1e-6)


def test_backward_before_any_forward_takes_what_lies_in_the_blobs(simple):
    values = np.random.default_rng(0).standard_normal(simple.blobs["conv"].shape).astype(np.float32)
    top = np.random.default_rng(1).standard_normal(simple.blobs["ip_blob"].shape).astype(np.float32)
    conv = simple.blobs["conv"].data
    conv[...] = values
    simple.blobs["ip_blob"].diff[...] = top
    simple.backward(start="ip", end="ip")
    weights = simple.params["ip"][0]
    np.testing.assert_allclose(simple.blobs["conv"].diff.reshape(5, -1), top @ weights.data, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(weights.diff, top.T @ values.reshape(5, -1), rtol=1e-4, atol=1e-4)
    assert (conv == values).all() and simple.blobs["conv"].data is not None
    assert (simple.blobs["ip_blob"].data == 0).all()
    simple.clear_param_diffs()
    conv *= 2
    simple.backward(start="ip", end="ip")
    np.testing.assert_allclose(weights.diff, 2 * top.T @ values.reshape(5, -1), rtol=1e-4, atol=1e-4)


IN_PLACE = """force_backward: true
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "norm" type: "BatchNorm" bottom: "x" top: "norm" }
layer { name: "sigmoid" type: "Sigmoid" bottom: "norm" top: "y" }
layer { name: "relu" type: "ReLU" bottom: "y" top: "y" }
layer { name: "dropout" type: "Dropout" bottom: "y" top: "dropped" }
"""


def test_backward_before_any_forward_reads_tops_as_they_lie_and_changes_no_value(tmp_path):
    made = net(tmp_path, IN_PLACE)
    made.blobs["x"].data[...] = [[1, 2, 3], [4, 5, 7]]
    made.blobs["y"].data[...] = [[0.25, 0.5, -1], [0, 0.75, 1]]
    made.blobs["y"].diff[...] = 1
    before = {name: blob.data.copy() for name, blob in made.blobs.items()}
    statistics = [blob.data.copy() for blob in made.params["norm"]]
    made.backward(start="relu", end="relu")
    np.testing.assert_array_equal(made.blobs["y"].diff, [[1, 1, 0], [0, 1, 1]])
    made.blobs["y"].diff[...] = 1
    made.backward(start="sigmoid", end="sigmoid")
    # dy y (1 - y), with the y that lies there
    np.testing.assert_allclose(made.blobs["norm"].diff, [[0.1875, 0.25, -2], [0, 0.1875, 0]], rtol=1e-6)
    made.backward()
    for name, values in before.items():
        np.testing.assert_array_equal(made.blobs[name].data, values)
    for blob, values in zip(made.params["norm"], statistics, strict=True):
        np.testing.assert_array_equal(blob.data, values)
