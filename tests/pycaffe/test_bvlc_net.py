"""BVLC Caffe's tests of its Python interface, one test here for each of theirs: nets, layers in Python, and solvers.

Classes and tests have the names that they have in python/caffe/test (test_net.py, test_python_layer.py,
test_python_layer_with_param_str.py, test_solver.py), so that each is found by its name; what they check is written
anew. The rest of those tests is in test_bvlc_modules.py.
"""

import numpy as np
import pytest

import mgcaffe.pycaffe as caffe
from tests.support.pycaffe_nets import SIMPLE, net, write

CLASSES = 13


def with_labels(made):
    """Fill in valid labels."""
    labels = made.blobs["label"].data
    labels[...] = np.random.default_rng(0).integers(CLASSES, size=labels.shape)
    return made


@pytest.fixture
def simple(tmp_path):
    caffe.set_random_seed(1)
    return with_labels(net(tmp_path, SIMPLE))


def assert_same_weights(one, other):
    assert list(one.params) == list(other.params) == ["conv", "ip"]
    for name, blobs in one.params.items():
        for mine, theirs in zip(blobs, other.params[name], strict=True):
            np.testing.assert_array_equal(mine.data, theirs.data)


def sum_of_all(nets):
    """Read every value and gradient."""
    total = 0.0
    for made in nets:
        blobs = [*made.blobs.values(), *(blob for blobs in made.params.values() for blob in blobs)]
        total += sum(float(blob.data.sum()) + float(blob.diff.sum()) for blob in blobs)
    return total


class TestNet:
    def test_memory(self, tmp_path):
        made = with_labels(net(tmp_path, SIMPLE))
        params = [blob for blobs in made.params.values() for blob in blobs]
        blobs = made.blobs.values()
        del made
        assert np.isfinite(sum(each.data.sum() + each.diff.sum() for each in [*params, *blobs]))

    def test_layer_dict(self, simple):
        assert list(simple.layer_dict) == list(simple._layer_names)
        types = [simple.layer_dict[name].type for name in simple._layer_names]
        assert types == [layer.type for layer in simple.layers]
        assert types == ["DummyData", "Convolution", "InnerProduct", "SoftmaxWithLoss"]

    def test_forward_backward(self, simple):
        assert np.isfinite(simple.forward()["loss"])
        simple.backward()
        assert np.isfinite(sum_of_all([simple]))

    def test_forward_start_end(self, simple):
        conv = simple.blobs["conv"]
        conv.data[...] = np.random.default_rng(1).uniform(size=conv.shape)
        found = simple.forward(start="ip", end="ip")
        assert list(found) == ["ip_blob"]
        weights, bias = (blob.data for blob in simple.params["ip"])
        expected = conv.data.reshape(len(conv.data), -1) @ weights.T + bias
        np.testing.assert_allclose(simple.blobs["ip_blob"].data, expected, rtol=1e-3, atol=1e-5)

    def test_backward_start_end(self, simple):
        top, conv = simple.blobs["ip_blob"], simple.blobs["conv"]
        top.diff[...] = np.random.default_rng(2).uniform(size=top.shape)
        sent = top.diff.copy()
        found = simple.backward(start="ip", end="ip")
        assert list(found) == ["conv"]
        expected = (sent @ simple.params["ip"][0].data).reshape(conv.shape)
        np.testing.assert_allclose(conv.diff, expected, rtol=1e-3, atol=1e-5)

    def test_clear_param_diffs(self, simple):
        simple.forward()
        simple.backward()
        diff = simple.params["conv"][0].diff
        assert diff.max() > 0
        simple.clear_param_diffs()
        assert (diff == 0).all()

    def test_inputs_outputs(self, simple):
        assert (simple.inputs, simple.outputs) == ([], ["loss"])

    def test_top_bottom_names(self, simple):
        tops = [("data", ["data", "label"]), ("conv", ["conv"]), ("ip", ["ip_blob"]), ("loss", ["loss"])]
        bottoms = [("data", []), ("conv", ["data"]), ("ip", ["conv"]), ("loss", ["ip_blob", "label"])]
        assert list(simple.top_names.items()) == tops
        assert list(simple.bottom_names.items()) == bottoms

    def test_save_and_read(self, simple, tmp_path):
        weights, file = str(tmp_path / "saved"), str(tmp_path / "net.prototxt")
        simple.save(weights)
        assert_same_weights(simple, caffe.Net(file, weights, caffe.TRAIN))
        assert_same_weights(simple, caffe.Net(file, caffe.TRAIN, weights=weights))

    def test_save_hdf5(self, simple, tmp_path):
        simple.save_hdf5(str(tmp_path / "saved"))
        other = net(tmp_path, SIMPLE)
        other.load_hdf5(str(tmp_path / "saved"))
        assert_same_weights(simple, other)


def ip(name, rules, bottom="data", outputs=1):
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {rules}'
        f" inner_product_param {{ num_output: {outputs} }} }}\n"
    )


DATA = (
    'layer { name: "data" type: "DummyData" top: "data"'
    " dummy_data_param { shape { dim: 1 dim: 1 dim: 10 dim: 10 } } }\n"
)
LEVELS = (
    DATA
    + ip("NoLevel", "")
    + ip("Level0Only", "include { min_level: 0 max_level: 0 }")
    + ip("Level1Only", "include { min_level: 1 max_level: 1 }")
    + ip("Level>=0", "include { min_level: 0 }")
    + ip("Level>=1", "include { min_level: 1 }")
)
STAGES = (
    DATA
    + ip("A", 'include { stage: "A" }')
    + ip("B", 'include { stage: "B" }')
    + ip("AorB", 'include { stage: "A" } include { stage: "B" }')
    + ip("AandB", 'include { stage: "A" stage: "B" }')
)


def blobs_of(made):
    return [name for name in made.blobs if "data" not in name]


class TestLevels:
    def test_0(self, tmp_path):
        assert blobs_of(net(tmp_path, LEVELS, caffe.TEST)) == ["NoLevel", "Level0Only", "Level>=0"]

    def test_1(self, tmp_path):
        made = net(tmp_path, LEVELS, caffe.TEST, level=1)
        assert blobs_of(made) == ["NoLevel", "Level1Only", "Level>=0", "Level>=1"]


class TestStages:
    def test_A(self, tmp_path):
        assert blobs_of(net(tmp_path, STAGES, caffe.TEST, stages=["A"])) == ["A", "AorB"]

    def test_B(self, tmp_path):
        assert blobs_of(net(tmp_path, STAGES, caffe.TEST, stages=["B"])) == ["B", "AorB"]

    def test_AandB(self, tmp_path):
        assert blobs_of(net(tmp_path, STAGES, caffe.TEST, stages=["A", "B"])) == ["A", "B", "AorB", "AandB"]


def data(name, rules):
    return (
        f'layer {{ name: "{name}" type: "DummyData" top: "data" top: "label" include {{ {rules} }} dummy_data_param {{'
        " shape { dim: 1 dim: 1 dim: 10 dim: 10 } shape { dim: 1 dim: 1 dim: 1 dim: 1 } } }\n"
    )


ALL_IN_ONE = (
    data("train_data", 'phase: TRAIN stage: "train"')
    + data("val_data", 'phase: TEST stage: "val"')
    + 'layer { name: "deploy_data" type: "Input" top: "data" include { phase: TEST stage: "deploy" }'
    " input_param { shape { dim: 1 dim: 1 dim: 10 dim: 10 } } }\n"
    + ip("ip", "", outputs=2)
    + 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss"'
    ' include: { phase: TRAIN stage: "train" } include: { phase: TEST stage: "val" } }\n'
    'layer { name: "pred" type: "Softmax" bottom: "ip" top: "pred" include: { phase: TEST stage: "deploy" } }\n'
)


class TestAllInOne:
    def check(self, made, outputs):
        assert tuple(made.blobs["data"].shape) == (1, 1, 10, 10)
        assert made.outputs == outputs

    def test_train(self, tmp_path):
        self.check(net(tmp_path, ALL_IN_ONE, caffe.TRAIN, stages=["train"]), ["loss"])

    def test_val(self, tmp_path):
        self.check(net(tmp_path, ALL_IN_ONE, caffe.TEST, stages=["val"]), ["loss"])

    def test_deploy(self, tmp_path):
        self.check(net(tmp_path, ALL_IN_ONE, caffe.TEST, stages=["deploy"]), ["pred"])


MODULE = """
import caffe

class Times(caffe.Layer):
    def setup(self, bottom, top):
        self.factor = float(self.param_str or 10)
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)
    def forward(self, bottom, top):
        top[0].data[...] = self.factor * bottom[0].data
    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = self.factor * top[0].diff

class Raises(caffe.Layer):
    def setup(self, bottom, top):
        raise RuntimeError

class Learns(caffe.Layer):
    def setup(self, bottom, top):
        self.blobs.add_blob(1)
        self.blobs[0].data[0] = 0
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)
    def forward(self, bottom, top):
        pass
    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[0] = 1

class Phase(caffe.Layer):
    def setup(self, bottom, top):
        pass
    def reshape(self, bottom, top):
        top[0].reshape()
    def forward(self, bottom, top):
        top[0].data[()] = self.phase
"""
INPUT = 'force_backward: true input: "data" input_shape { dim: 10 dim: 9 dim: 8 }\n'


def user(name, layer, bottom="", more=""):
    """A layer of the user's own; its top has its name."""
    bottom = f'bottom: "{bottom}"' if bottom else ""
    return (
        f'layer {{ type: "Python" name: "{name}" {bottom} top: "{name}"'
        f' python_param {{ module: "user_layers" layer: "{layer}" {more} }} }}\n'
    )


@pytest.fixture
def _user_layers(tmp_path):
    (tmp_path / "user_layers.py").write_text(MODULE)


@pytest.mark.usefixtures("_user_layers")
class TestPythonLayer:
    @pytest.fixture
    def chain(self, tmp_path):
        text = user("one", "Times", "data") + user("two", "Times", "one") + user("three", "Times", "two")
        return net(tmp_path, INPUT + text)

    def test_forward(self, chain):
        chain.blobs["data"].data[...] = 8
        chain.forward()
        assert (chain.blobs["three"].data == 10**3 * 8).all()

    def test_backward(self, chain):
        """No forward pass comes before it."""
        chain.blobs["three"].diff[...] = 7
        chain.backward()
        assert (chain.blobs["data"].diff == 10**3 * 7).all()

    def test_reshape(self, chain):
        chain.blobs["data"].reshape(4, 4, 4, 4)
        chain.forward()
        assert [blob.data.shape for blob in chain.blobs.values()] == [(4, 4, 4, 4)] * 4

    def test_exception(self, tmp_path):
        with pytest.raises(RuntimeError):
            net(tmp_path, INPUT + user("layer", "Raises", "data"), caffe.TEST)

    def test_parameter(self, tmp_path):
        made = net(tmp_path, INPUT + user("layer", "Learns", "data"))
        made.forward()
        made.backward()
        blob = made.layers[list(made._layer_names).index("layer")].blobs[0]
        assert (blob.data[0], blob.diff[0]) == (0, 1)
        blob.data[0] += blob.diff[0]
        assert blob.data[0] == 1
        made.save(str(tmp_path / "saved"))
        blob.data[0] = -1
        assert made.params["layer"][0].data[0] == -1
        made.copy_from(str(tmp_path / "saved"))
        assert blob.data[0] == 1
        other = caffe.Net(str(tmp_path / "net.prototxt"), caffe.TRAIN)
        other.share_with(made)
        shared = other.layers[list(other._layer_names).index("layer")].blobs[0]
        assert shared.data[0] == 1
        blob.data[0] = 5
        assert shared.data[0] == 5

    def test_phase(self, tmp_path):
        for phase in (caffe.TRAIN, caffe.TEST):
            made = net(tmp_path, "force_backward: true\n" + user("phase", "Phase"), phase)
            assert made.forward()["phase"] == phase


@pytest.mark.usefixtures("_user_layers")
class TestLayerWithParam:
    @pytest.fixture
    def chain(self, tmp_path):
        text = user("mul10", "Times", "data", 'param_str: "10"') + user("mul2", "Times", "mul10", 'param_str: "2"')
        return net(tmp_path, INPUT + text)

    def test_forward(self, chain):
        chain.blobs["data"].data[...] = 8
        chain.forward()
        assert (chain.blobs["mul2"].data == 2 * 10 * 8).all()

    def test_backward(self, chain):
        """No forward pass comes before it."""
        chain.blobs["mul2"].diff[...] = 7
        chain.backward()
        assert (chain.blobs["data"].diff == 2 * 10 * 7).all()


SOLVER = """
net: "net.prototxt" test_iter: 10 test_interval: 10 base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: "inv"
gamma: 0.0001 power: 0.75 display: 100 max_iter: 100 snapshot_after_train: false snapshot_prefix: "model"
"""


class TestSolver:
    @pytest.fixture
    def solver(self, tmp_path):
        write(tmp_path, SIMPLE)
        file = write(tmp_path, SOLVER, "solver.prototxt")
        made = caffe.SGDSolver(file)
        assert type(caffe.get_solver(file)) is caffe.SGDSolver
        for each in (made.net, made.test_nets[0]):
            with_labels(each)
        return made

    def test_solve(self, solver):
        assert solver.iter == 0
        solver.solve()
        assert solver.iter == 100

    def test_apply_update(self, solver):
        blob = solver.net.layers[1].blobs[0]
        weights = blob.data[...]
        weights[...] = 0
        blob.diff[...] = 1
        solver.apply_update()
        np.testing.assert_allclose(weights, np.full_like(weights, -0.01), atol=1e-7)

    def test_net_memory(self, tmp_path):
        write(tmp_path, SIMPLE)
        solver = caffe.SGDSolver(write(tmp_path, SOLVER, "solver.prototxt"))
        nets = [solver.net, *solver.test_nets]
        assert len(nets) == 2
        del solver
        assert np.isfinite(sum_of_all(nets))

    def test_snapshot(self, solver, tmp_path):
        solver.snapshot()
        for ending in ("caffemodel", "solverstate"):
            assert (tmp_path / f"model_iter_0.{ending}").is_file()
