"""Python layers: the protocol, their blobs, their place in nets that free their blobs, and errors of users."""

import signal
import textwrap

import numpy as np
import pytest
import torch

from mgcaffe.engine.layer import TEST, TRAIN
from mgcaffe.engine.net import Net
from mgcaffe.errors import NetError
from mgcaffe.prototxt import parse_net
from tests.support.netkit import inputs, make_net

MODULE = """
import sys
from mgcaffe.engine.user_layer import UserLayer as Layer

class Ten(Layer):
    def setup(self, bottom, top):
        self.factor = float(self.param_str or 10)

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        top[0].data[...] = self.factor * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        if propagate_down[0]:
            bottom[0].diff[...] = self.factor * top[0].diff

class Weight(Layer):
    def setup(self, bottom, top):
        self.blobs.add_blob(3)
        self.blobs[0].data[...] = [1, 2, 3]

    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        top[0].data[...] = self.blobs[0].data * bottom[0].data

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[...] += (top[0].diff * bottom[0].data).sum(axis=0)
        bottom[0].diff[...] = top[0].diff * self.blobs[0].data

class Growing(Layer):
    calls = 0

    def reshape(self, bottom, top):
        self.calls += 1
        top[0].reshape(self.calls, 2)

    def forward(self, bottom, top):
        top[0].data[...] = self.calls

class HalfSquare(Layer):
    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        top[0].data[0] = (bottom[0].data ** 2).sum() / 2

    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = top[0].diff[0] * bottom[0].data

class Deaf(HalfSquare):
    def backward(self, top, propagate_down, bottom):
        bottom[0].diff[...] = bottom[0].data

class DeafWithMetric(Deaf):
    def reshape(self, bottom, top):
        super().reshape(bottom, top)
        top[1].reshape(1)

class HalfSquareAndBottom(HalfSquare):
    def reshape(self, bottom, top):
        super().reshape(bottom, top)
        top[1].reshape(*bottom[0].data.shape)

    def forward(self, bottom, top):
        super().forward(bottom, top)
        top[1].data[...] = bottom[0].data

    def backward(self, top, propagate_down, bottom):
        super().backward(top, propagate_down, bottom)
        bottom[0].diff[...] += top[1].diff


class Persistent(Layer):
    def reshape(self, bottom, top):
        top[0].reshape(4)

    def forward(self, bottom, top):
        top[0].data[1] += 1

class Raising(Layer):
    def setup(self, bottom, top):
        if self.param_str == "setup":
            raise RuntimeError("no setup")

    def reshape(self, bottom, top):
        if self.param_str == "reshape":
            top[0].reshape(1.5)
        top[0].reshape(1)

    def forward(self, bottom, top):
        if self.param_str == "forward":
            self.helper({})

    def helper(self, table):
        return table["missing"]

class Mute(Exception):
    def __str__(self):
        raise ValueError("no text")

    __repr__ = __str__

class Stop(BaseException):
    pass

class Choosy(Exception):
    def __init__(self, *words):
        if len(words) < 2:
            raise LookupError("two words")

class Ending(Layer):
    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        if self.param_str == "exit":
            sys.exit(0)
        raise {"mute": Mute(), "stop": Stop("enough"), "choosy": Choosy(1, 2), "generator": GeneratorExit(),
               "interrupt": KeyboardInterrupt()}[self.param_str]

class Silent(Layer):
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        pass

class Phase(Layer):
    def reshape(self, bottom, top):
        top[0].reshape()

    def forward(self, bottom, top):
        top[0].data[...] = self.phase

class Reshaped(Weight):
    def setup(self, bottom, top):
        self.blobs.add_blob()
        self.blobs.add_blob(1)
        self.blobs[0].reshape(3)
        self.blobs[0].data[...] = [1, 2, 3]
        self.blobs[1].data[...] = 5
        self.blobs[1].reshape(1, 1)
        if self.param_str == "large":
            self.blobs[1].reshape(2**31, 2**31)

    def reshape(self, bottom, top):
        super().reshape(bottom, top)
        if self.param_str == "late":
            self.blobs[0].reshape(4)

class Late(Layer):
    def reshape(self, bottom, top):
        self.blobs.add_blob(1)

class NoLayer:
    pass
"""


@pytest.fixture(autouse=True)
def _module(tmp_path, monkeypatch):
    import sys

    (tmp_path / "user_layers.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield
    sys.path[:] = path
    for name in [name for name in sys.modules if name.startswith(("user_layers", "user_broken"))]:
        del sys.modules[name]


def python(layer, name="py", bottom="x", top="y", param_str="", more="", module="user_layers"):
    bottoms = f'bottom: "{bottom}" ' if bottom else ""
    return (
        f'layer {{ name: "{name}" type: "Python" {bottoms}top: "{top}" {more}\n'
        f'  python_param {{ module: "{module}" layer: "{layer}" param_str: "{param_str}" }} }}\n'
    )


def test_forward_and_backward_through_a_chain():
    text = "force_backward: true\n" + inputs(x=(2, 3))
    net = make_net(text + python("Ten") + python("Ten", "b", "y", "z", "2.5") + python("Ten", "c", "z", "w"))
    net.blobs["x"].data.fill_(3)
    net.forward()
    assert (net.blobs["w"].data == 3 * 10 * 2.5 * 10).all()
    net.blobs["w"].diff = torch.full((2, 3), 7.0, dtype=torch.float64)
    net.backward()
    assert (net.blobs["x"].diff == 7 * 250).all()
    assert (net.blobs["y"].diff == 7 * 25).all()


def test_reshape_follows_the_bottoms():
    net = make_net("force_backward: true\n" + inputs(x=(2, 3)) + python("Ten"))
    net.forward()
    net.layers[0].values[0] = torch.ones(4, 5, dtype=torch.float64)
    net.forward()
    assert net.blobs["y"].data.shape == (4, 5)
    assert net.blobs["y"].shape == (4, 5)


def test_tops_may_change_their_shape_in_each_pass():
    net = make_net(python("Growing", bottom=""))
    shapes = []
    for _ in range(3):
        net.forward()
        shapes.append(tuple(net.blobs["y"].data.shape))
    assert shapes == [(2, 2), (3, 2), (4, 2)]


def test_a_layer_in_place():
    net = make_net("force_backward: true\n" + inputs(x=(2, 3)) + python("Ten", "a") + python("Ten", "b", "y", "y"))
    net.blobs["x"].data.fill_(1)
    net.forward()
    assert (net.blobs["y"].data == 100).all()
    assert (net.blobs["x"].data == 1).all()
    net.blobs["y"].diff = torch.ones(2, 3, dtype=torch.float64)
    net.backward()
    assert (net.blobs["x"].diff == 100).all()


def test_an_input_is_not_written_over_in_place():
    net = make_net(inputs(x=(2, 3)) + python("Ten", "a", "x", "x"))
    net.blobs["x"].data.fill_(1)
    values = net.layers[0].values[0]
    net.forward()
    net.forward()
    assert (net.blobs["x"].data == 10).all()
    assert (values == 1).all()


def test_a_learnable_blob_begins_with_what_setup_wrote_and_learns():
    net = make_net(inputs(x=(2, 3)) + python("Weight") + python("HalfSquare", "loss", "y", "l", more="loss_weight: 1"))
    parameter = net.parameters[0]
    assert parameter.data.tolist() == [1, 2, 3]
    net.blobs["x"].data.fill_(2)
    assert net.forward() == 2 * (4 + 16 + 36) / 2
    net.clear_param_diffs()
    net.backward()
    # d/dw of half the sum of (w x)^2 over two rows, x = 2
    assert parameter.diff.tolist() == [8, 16, 24]
    net.backward()
    assert parameter.diff.tolist() == [16, 32, 48]
    net.clear_param_diffs()
    net.backward()
    assert parameter.diff.tolist() == [8, 16, 24]


def test_a_learnable_blob_is_saved_and_loaded():
    text = inputs(x=(2, 3)) + python("Weight")
    net, other = make_net(text), make_net(text)
    net.parameters[0].data.mul_(5)
    other.copy_trained_layers(net.to_proto())
    assert other.parameters[0].data.tolist() == [5, 10, 15]


def test_a_shared_learnable_blob_is_one():
    text = inputs(x=(2, 3)) + python("Weight", more='param { name: "w" }')
    net = make_net(text + python("Weight", "b", "y", "z", more='param { name: "w" }'))
    assert len(net.parameters) == 1
    net.blobs["x"].data.fill_(1)
    net.forward()
    assert net.blobs["z"].data[0].tolist() == [1, 4, 9]


@pytest.mark.parametrize("keep_blobs", [True, False])
def test_a_loss_counts_by_its_weight(keep_blobs):
    ip = (
        'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 2'
        ' weight_filler { type: "constant" value: 1 } } }\n'
    )
    net = make_net(
        inputs(x=(1, 3)) + ip + python("HalfSquare", "loss", "ip", "l", more="loss_weight: 0.5"), keep_blobs=keep_blobs
    )
    net.layers[0].values[0].fill_(1)
    assert net.forward() == 0.5 * (9 + 9) / 2
    net.backward()
    assert net.parameters[1].diff.tolist() == [1.5, 1.5]


def test_what_forward_leaves_untouched_stays():
    net = make_net(python("Persistent", bottom=""))
    for _ in range(3):
        net.forward()
    assert net.blobs["y"].data.tolist() == [0, 3, 0, 0]


@pytest.mark.parametrize("phase", [TRAIN, TEST])
def test_the_phase_is_known(phase):
    net = make_net(python("Phase", bottom=""), phase=phase)
    net.forward()
    assert net.blobs["y"].data.item() == phase


def test_bottoms_in_another_memory_order_read_the_same():
    net = make_net(inputs(x=(2, 3, 4, 5)) + python("Ten"))
    values = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    net.layers[0].values[0] = values.contiguous(memory_format=torch.channels_last)
    net.forward()
    assert torch.equal(net.blobs["y"].data, 10 * values)


# -- errors --------------------------------------------------------------------------------------------------


def located(text, **options):
    source = parse_net(text, file="net.prototxt")
    return Net(source.param, sources=source, seed=1, **options)


@pytest.mark.parametrize(
    ("method", "kind", "message"),
    [
        ("setup", RuntimeError, "RuntimeError: no setup"),
        ("reshape", TypeError, "TypeError: 'float' object cannot be interpreted as an integer"),
    ],
)
def test_an_exception_in_setup_or_reshape_is_located(method, kind, message):
    with pytest.raises(NetError) as caught:
        located(python("Raising", bottom="", param_str=method))
    text = str(caught.value)
    assert text.startswith("net.prototxt:2:3: ")
    assert f"{method} failed in user_layers.Raising (layer 'py', type Python): {message}" in text
    assert f", in {method}\n" in text
    assert isinstance(caught.value, kind)


def test_an_exception_shows_the_users_lines_and_not_ours():
    net = located(python("Raising", bottom="", param_str="forward"))
    with pytest.raises(KeyError) as caught:
        net.forward()
    text = str(caught.value)
    assert "user_layers.py" in text
    assert ", in forward\n    self.helper({})" in text
    assert ', in helper\n    return table["missing"]' in text
    assert "engine" not in text
    assert isinstance(caught.value, NetError)


def test_setup_may_give_a_learnable_blob_another_shape():
    loss = python("HalfSquare", "loss", "y", "l", more="loss_weight: 1")
    net = make_net(inputs(x=(2, 3)) + python("Reshaped") + loss)
    assert [parameter.data.tolist() for parameter in net.parameters] == [[1, 2, 3], [[5]]]
    net.blobs["x"].data.fill_(2)
    assert net.forward() == 2 * (4 + 16 + 36) / 2
    net.backward()
    assert net.parameters[0].diff.tolist() == [8, 16, 24]


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ("late", r"blob of shape \(3,\) cannot become one of shape \(4,\) after setup\n.*reshape it in setup"),
        ("large", r"parameter 1 of shape 2147483648x2147483648 would take"),
    ],
)
def test_a_learnable_blob_keeps_its_shape_after_setup_and_fits_the_machine(when, message):
    with pytest.raises(NetError, match=message):
        make_net(inputs(x=(2, 3)) + python("Reshaped", param_str=when))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("exit", "SystemExit: 0\n"),
        ("mute", "Mute (its __str__ raises ValueError)\n"),
        ("stop", "Stop: enough\n"),
        ("choosy", "Choosy: (1, 2)\n"),
        ("generator", "GeneratorExit\n"),
    ],
)
def test_whatever_it_raises_is_a_failure_of_the_layer(how, message):
    net = located(python("Ending", bottom="", param_str=how))
    with pytest.raises(NetError) as caught:
        net.forward()
    text = str(caught.value)
    assert f"net.prototxt:2:3: forward failed in user_layers.Ending (layer 'py', type Python): {message}" in text
    assert ", in forward\n" in text
    assert ("must not end the process" in text) == (how == "exit")


def test_an_interrupt_is_a_failure_of_the_layer_unless_it_may_be_ctrl_c():
    net = located(python("Ending", bottom="", param_str="interrupt"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            net.forward()
        signal.signal(signal.SIGINT, lambda number, frame: None)
        with pytest.raises(NetError, match=r"forward failed in user_layers\.Ending .* KeyboardInterrupt"):
            net.forward()
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("layer", "module", "message"),
    [
        ("Ten", "user_nowhere", "there is no Python module 'user_nowhere'"),
        ("Twelve", "user_layers", "has no class 'Twelve'"),
        ("NoLayer", "user_layers", "class 'NoLayer' of module 'user_layers'"),
        ("", "user_layers", "python_param.layer is missing"),
        ("Ten", "", "python_param.module is missing"),
        ("Late", "user_layers", "blobs can be added only in setup"),
    ],
)
def test_mistakes_in_python_param_are_named(layer, module, message):
    with pytest.raises(NetError, match=message) as caught:
        located(inputs(x=(1,)) + python(layer, module=module))
    assert "net.prototxt:3" in str(caught.value)


def test_a_missing_backward_is_named():
    net = make_net("force_backward: true\n" + inputs(x=(2,)) + python("Silent"))
    net.forward()
    with pytest.raises(NetError, match=r"Silent has no method backward"):
        net.backward()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("def f(:\n", "SyntaxError"),
        ("import nothing_of_this_name\n", "No module named 'nothing_of_this_name'"),
        ("print 'setup'\n", r"Missing parentheses in call to 'print'[\s\S]*this is Python 2: 2to3 -w FILE"),
        ("import sys\nsys.exit()\n", "importing 'user_broken' failed in user_broken.Ten .* SystemExit"),
    ],
)
def test_a_module_that_cannot_be_imported_is_named(tmp_path, content, message):
    (tmp_path / "user_broken.py").write_text(content)
    with pytest.raises(NetError, match=message) as caught:
        located(python("Ten", bottom="", module="user_broken"))
    assert "user_broken.py" in str(caught.value)


def test_a_module_may_import_caffe(tmp_path):
    (tmp_path / "user_broken.py").write_text(
        "import caffe\n\nclass One(caffe.Layer):\n    def reshape(self, bottom, top):\n"
        "        top[0].reshape(1)\n\n    def forward(self, bottom, top):\n        top[0].data[0] = caffe.TEST\n"
    )
    net = make_net(python("One", bottom="", module="user_broken"))
    net.forward()
    assert net.blobs["y"].data.tolist() == [1]
    assert np.asarray(net.layers[0].user.blobs).size == 0


@pytest.mark.parametrize("keep_blobs", [True, False])
@pytest.mark.parametrize("layer", ["HalfSquare", "Deaf", "DeafWithMetric", "HalfSquareAndBottom"])
def test_a_factor_on_the_loss_reaches_gradients_also_through_a_loss_that_ignores_its_tops(layer, keep_blobs):
    second = layer in ("DeafWithMetric", "HalfSquareAndBottom")
    tops = "top: 'loss' loss_weight: 1" + (" top: 'second' loss_weight: 0" if second else "")
    text = inputs(x=(2, 3)) + "".join(
        (
            "layer { name: 'ip' type: 'InnerProduct' bottom: 'x' top: 'ip' inner_product_param { num_output: 2 "
            "weight_filler { type: 'gaussian' } } }\n",
            f"layer {{ name: 'loss' type: 'Python' bottom: 'ip' bottom: 'x' {tops} "
            f"python_param {{ module: 'user_layers' layer: '{layer}' }} }}\n",
            "layer { name: 'sum' type: 'Reduction' bottom: 'second' top: 'sum' loss_weight: 2 }\n"
            if layer == "HalfSquareAndBottom"
            else "",
        )
    )
    net = make_net(text, phase=TRAIN, keep_blobs=keep_blobs)
    net.layers[0].forward([])[0].copy_(torch.arange(6.0).view(2, 3))
    found = []
    for factor in (1.0, 4.0, 1.0):
        net.clear_param_diffs()
        net.forward()
        net.backward(loss_scale=factor)
        found.append(net.arena.diff.clone())
        assert not keep_blobs or net.blobs["loss"].diff.tolist() == [1.0]
    assert found[0].abs().max() > 0
    assert torch.equal(found[1], 4 * found[0])
    assert torch.equal(found[2], found[0])
