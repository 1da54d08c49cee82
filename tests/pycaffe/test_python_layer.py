"""Python layers through caffe.Net, beyond what pycaffe's own tests check (test_bvlc_net.py)."""

import numpy as np
import pytest

import mgcaffe.pycaffe as caffe
from mgcaffe.engine import host_copies
from mgcaffe.engine.layers.python import Python as PythonLayer
from tests.support.pycaffe_nets import net

MODULE = """
import caffe

class SimpleLayer(caffe.Layer):
    def setup(self, bottom, top):
        pass
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)
    def forward(self, bottom, top):
        top[0].data[...] = 10 * bottom[0].data
    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = 10 * top[0].diff

class ParamStrLayer(caffe.Layer):
    def setup(self, bottom, top):
        self.value = float(self.param_str)
    def reshape(self, bottom, top):
        top[0].reshape(bottom[0].shape[0])
    def forward(self, bottom, top):
        top[0].data[...] = self.value
    def set_value(self, value):
        self.value = value

class KeepsItsTop(caffe.Layer):
    def setup(self, bottom, top):
        pass
    def reshape(self, bottom, top):
        top[0].reshape(2, 3)
    def forward(self, bottom, top):
        pass
    def backward(self, top, propagate_down, bottom):
        pass

class BeginsWithSevens(KeepsItsTop):
    def setup(self, bottom, top):
        top[0].reshape(2, 3)
        top[0].data[...] = 7

class GradientOfTopInForward(SimpleLayer):
    def forward(self, bottom, top):
        top[0].diff[...] = bottom[0].data

class GradientInForward(SimpleLayer):
    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data
        bottom[0].diff[...] = 3
    def backward(self, top, propagate_down, bottom):
        pass
"""
DATA = 'layer { type: "DummyData" name: "data" top: "data" dummy_data_param { shape { dim: 10 dim: 9 dim: 8 } } }\n'


@pytest.fixture(autouse=True)
def _module(tmp_path):
    (tmp_path / "user_layers.py").write_text(MODULE)


def python(layer, bottom="data", top="top", name="layer", more=""):
    bottom = f'bottom: "{bottom}"' if bottom else ""
    return (
        f'layer {{ type: "Python" name: "{name}" {bottom} top: "{top}"'
        f' python_param {{ module: "user_layers" layer: "{layer}" {more} }} }}\n'
    )


def chain(tmp_path):
    text = "force_backward: true\n" + DATA.replace("DummyData", "Input").replace("dummy_data_param", "input_param")
    text += python("SimpleLayer", "data", "one", "one") + python("SimpleLayer", "one", "two", "two")
    return net(tmp_path, text + python("SimpleLayer", "two", "three", "three"))


def test_backward(tmp_path):
    made = chain(tmp_path)
    made.forward()
    made.blobs["three"].diff[...] = 7
    made.backward()
    assert (made.blobs["data"].diff == 7 * 10**3).all()


def test_backward_before_any_forward(tmp_path):
    """Caffe calls the layer's `backward` with what lies in the blobs, and not its `forward`."""
    made = chain(tmp_path)
    made.blobs["one"].data[...] = 5
    made.blobs["three"].diff[...] = 7
    made.backward()
    assert (made.blobs["data"].diff == 7 * 10**3).all()
    assert (made.blobs["one"].data == 5).all() and (made.blobs["two"].data == 0).all()


def test_reshape(tmp_path):
    made = chain(tmp_path)
    made.blobs["data"].reshape(4, 6)
    made.reshape()
    assert all(blob.data.shape == (4, 6) for blob in made.blobs.values())


def test_param_str(tmp_path):
    made = net(tmp_path, DATA + python("ParamStrLayer", more='param_str: "3.5"'))
    assert (made.forward()["top"] == 3.5).all()


def test_layers_gives_the_users_own_object(tmp_path):
    made = net(tmp_path, DATA + python("ParamStrLayer", more='param_str: "3.5"'))
    made.layers[1].set_value(4)
    assert (made.forward()["top"] == 4).all()
    assert made.layers[1].type == "Python"
    assert isinstance(made.layers[1], caffe.Layer)
    assert np.shape(made.layers[1].blobs) == (0,)


def test_a_gradient_written_in_forward_counts_in_each_backward(tmp_path):
    power = 'layer { type: "Power" name: "power" bottom: "data" top: "power" power_param { scale: 2 } }\n'
    made = net(tmp_path, "force_backward: true\n" + DATA + power + python("GradientInForward", "power"))
    made.forward()
    for _ in range(2):
        made.backward()
        assert (made.blobs["power"].diff == 3).all()
        assert (made.blobs["data"].diff == 6).all()


def filled_by_the_script(tmp_path, more=""):
    """Return what two passes make of 1 and of 2 that the script writes into a top which `forward` leaves alone."""
    text = python("KeepsItsTop", "", "data", "data") + more
    text += 'layer { type: "Power" name: "twice" bottom: "data" top: "twice" power_param { scale: 2 } }'
    made = net(tmp_path, text)
    results = []
    for value in (1, 2):
        made.blobs["data"].data[...] = value
        results.append(made.forward()["twice"].copy())
    return results


def test_what_a_script_writes_into_a_top_is_there_in_every_pass(tmp_path):
    for result, value in zip(filled_by_the_script(tmp_path), (2, 4), strict=True):
        np.testing.assert_array_equal(result, np.full((2, 3), value))


def test_what_setup_leaves_in_a_top_stays_when_it_is_read_before_the_first_pass(tmp_path):
    made = net(tmp_path, python("BeginsWithSevens", "", "data", "data"))
    assert (made.blobs["data"].data == 7).all()
    assert (made.forward()["data"] == 7).all()


def test_a_top_that_a_script_reshapes_has_a_gradient_of_its_new_shape(tmp_path):
    data = 'layer { type: "Input" name: "data" top: "data" input_param { shape { dim: 2 dim: 3 } } }\n'
    made = net(tmp_path, data + python("GradientOfTopInForward"))
    for shape in ((2, 3), (4, 3)):
        for blob in made.blobs.values():
            blob.reshape(*shape)
        assert made.forward()["top"].shape == shape


def test_what_a_script_writes_into_a_top_is_there_behind_a_layer_in_place(tmp_path):
    in_place = 'layer { type: "Power" name: "half" bottom: "data" top: "data" power_param { scale: 0.5 } }\n'
    for result, value in zip(filled_by_the_script(tmp_path, in_place), (1, 2), strict=True):
        np.testing.assert_array_equal(result, np.full((2, 3), value))


def test_what_a_script_writes_into_a_top_is_there_on_another_device(tmp_path, monkeypatch):
    monkeypatch.setattr(host_copies, "shares_memory", lambda tensor: False)
    forward, first_values = PythonLayer.forward, PythonLayer.first_values
    monkeypatch.setattr(PythonLayer, "forward", lambda *given: [each.clone() for each in forward(*given)])
    monkeypatch.setattr(PythonLayer, "first_values", lambda layer: [each.clone() for each in first_values(layer)])
    for result, value in zip(filled_by_the_script(tmp_path), (2, 4), strict=True):
        np.testing.assert_array_equal(result, np.full((2, 3), value))
