"""Blobs whose tensors numpy cannot reach: copies stand in for them, and what is written into those arrives.

Here all tensors are treated so, as those of a GPU are.
"""

import numpy as np
import pytest

import mgcaffe.pycaffe as caffe
from mgcaffe.engine import host_copies
from tests.support.pycaffe_nets import DEPLOY, SIMPLE, net, write


@pytest.fixture(autouse=True)
def _no_shared_memory(monkeypatch):
    monkeypatch.setattr(host_copies, "shares_memory", lambda tensor: False)
    yield
    host_copies.write_back()


def test_an_array_is_a_copy_until_it_is_written_back(tmp_path):
    made = net(tmp_path, DEPLOY, caffe.TEST)
    made.blobs["data"].data[...] = 1
    assert made.engine_net.blobs["data"].data.max() == 0
    assert made.blobs["data"].data.min() == 1
    host_copies.write_back(made._loans)
    assert made.engine_net.blobs["data"].data.min() == 1


def test_forward_reads_what_was_written_into_inputs_and_parameters(tmp_path):
    made = net(tmp_path, DEPLOY, caffe.TEST)
    for blob in made.params["fc"]:
        blob.data[...] = 0
    made.params["fc"][1].data[2] = 100
    made.blobs["data"].data[...] = 1
    np.testing.assert_allclose(made.forward()["prob"][:, 2], 1)
    made.params["fc"][1].data[2] = 0
    np.testing.assert_allclose(made.forward()["prob"], 0.2)


def test_an_input_that_a_layer_in_place_writes_over_can_be_filled_anew(tmp_path):
    text = """layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 } } }
      layer { name: "twice" type: "Power" bottom: "x" top: "x" power_param { scale: 2 } }"""
    made = net(tmp_path, text)
    made.blobs["x"].data[...] = 1
    made.forward()
    made.blobs["x"].data[1] = 5
    assert made.forward()["x"].tolist() == [4, 10]
    assert made.forward(x=np.array([3, 4]))["x"].tolist() == [6, 8]


def test_blobs_in_one_memory_have_one_copy(tmp_path):
    ip = """bottom: "x" type: "InnerProduct" param { name: "w" }
      inner_product_param { num_output: 2 bias_term: false }"""
    text = f"""layer {{ name: "x" type: "Input" top: "x" input_param {{ shape {{ dim: 4 dim: 3 }} }} }}
      layer {{ name: "a" top: "a" {ip} }} layer {{ name: "b" top: "b" {ip} }}"""
    made, other = net(tmp_path, text), net(tmp_path, text)
    other.share_with(made)
    made.forward()
    mine, shared = made.params["a"][0].data, made.params["b"][0].data
    mine[...] = 1
    made.blobs["x"].data[...] = 2
    assert (shared == 1).all() and (other.params["b"][0].data == 1).all()
    assert all((made.blobs[name].data == 2).all() for name in made.blobs if name.startswith("x"))
    assert all((values == 6).all() for values in made.forward().values())


def test_a_net_takes_no_copy_from_a_script_that_fills_another(tmp_path):
    made, other = net(tmp_path, DEPLOY, caffe.TEST), net(tmp_path, DEPLOY, caffe.TEST)
    images = made.blobs["data"].data
    other.forward()  # in a thread of its own it may come here
    images[...] = 1
    expected = other.forward(data=np.ones((4, 3, 8, 8)))["prob"]
    for mine, theirs in zip(made.params.values(), other.params.values(), strict=True):
        for blob, theirs_too in zip(mine, theirs, strict=True):
            blob.data[...] = theirs_too.data
    np.testing.assert_array_equal(made.forward()["prob"], expected)


def test_what_was_written_outlives_a_reshape(tmp_path):
    text = """layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 4 dim: 3 } } }
      layer { name: "twice" type: "Power" bottom: "x" top: "y" power_param { scale: 2 } }"""
    made = net(tmp_path, text)
    made.blobs["x"].data[...] = 1
    made.blobs["x"].reshape(2, 3)
    assert made.blobs["x"].data.tolist() == [[1] * 3] * 2
    assert made.forward()["y"].tolist() == [[2] * 3] * 2


def test_a_new_pass_gives_new_values(tmp_path):
    made = net(tmp_path, DEPLOY, caffe.TEST)
    random = np.random.default_rng(0)
    first = made.forward(data=random.standard_normal((4, 3, 8, 8)))["prob"].copy()
    second = made.forward(data=random.standard_normal((4, 3, 8, 8)))["prob"]
    assert np.abs(first - second).max() > 0


def test_backward_starts_from_what_was_written(tmp_path):
    made = net(tmp_path, DEPLOY, caffe.TEST)
    made.forward(end="fc")
    made.blobs["fc"].diff[...] = 0
    made.blobs["fc"].diff[0, 3] = 1
    made.backward(start="fc", end="fc")
    np.testing.assert_allclose(made.blobs["conv1"].diff[0].ravel(), made.params["fc"][0].data[3], rtol=1e-5)


def test_saved_weights_are_those_that_were_written(tmp_path):
    made = net(tmp_path, DEPLOY, caffe.TEST)
    made.params["fc"][1].data[...] = 5
    made.save(tmp_path / "a.caffemodel")
    made.params["fc"][1].data[...] = 0
    made.copy_from(tmp_path / "a.caffemodel")
    assert (made.params["fc"][1].data == 5).all()


def test_hooks_write_through(tmp_path):
    made = net(tmp_path, DEPLOY, caffe.TEST)

    def hook(layer):
        if layer == made._layer_names.index("fc"):
            made.blobs["fc"].data[...] = [[0, 0, 0, 0, 100]] * 4

    made.after_forward(hook)
    np.testing.assert_allclose(made.forward()["prob"][:, 4], 1)


def test_clear_param_diffs_wins_over_what_was_written_before(tmp_path):
    made = net(tmp_path, SIMPLE)
    made.params["ip"][0].diff[...] = 3
    made.clear_param_diffs()
    assert (made.params["ip"][0].diff == 0).all()


def test_solvers_see_what_was_written_and_show_what_they_did(tmp_path):
    write(tmp_path, SIMPLE)
    solver = caffe.SGDSolver(
        write(tmp_path, 'net: "net.prototxt" base_lr: 0.5 lr_policy: "fixed" snapshot_prefix: "s"', "solver.prototxt")
    )
    weights = solver.net.params["conv"][0]
    weights.data[...] = 0
    weights.diff[...] = 1
    solver.apply_update()
    np.testing.assert_allclose(weights.data, -0.5)

    def ready():
        for blobs in solver.net.params.values():
            for blob in blobs:
                blob.diff[...] = 2

    solver.add_callback(lambda: None, ready)
    solver.step(1)
    np.testing.assert_allclose(weights.data, -1.5)


def test_a_layer_in_python_writes_its_learnable_blobs_through(tmp_path):
    (tmp_path / "user_layers.py").write_text(
        "import caffe\n\nclass Weight(caffe.Layer):\n"
        "    def setup(self, bottom, top):\n        self.blobs.add_blob(2)\n        self.blobs[0].data[...] = [1, 2]\n"
        "    def reshape(self, bottom, top):\n        top[0].reshape(2)\n"
        "    def forward(self, bottom, top):\n        top[0].data[...] = self.blobs[0].data\n"
        "        self.blobs[0].data[...] += 1\n"
        "    def backward(self, top, propagate_down, bottom):\n        self.blobs[0].diff[...] += top[0].diff\n"
    )
    made = net(
        tmp_path,
        'force_backward: true layer { name: "w" type: "Python" top: "w" python_param { module: "user_layers"'
        ' layer: "Weight" } }',
    )
    assert made.forward()["w"].tolist() == [1, 2]
    assert made.engine_net.parameters[0].data.tolist() == [2, 3]
    made.blobs["w"].diff[...] = 7
    made.backward()
    assert made.params["w"][0].diff.tolist() == [7, 7]
    made.params["w"][0].data[...] = 9
    assert made.forward()["w"].tolist() == [9, 9]
