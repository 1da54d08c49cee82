"""One training step of both sides, as part of the proof."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mgcaffe.engine.weights.caffemodel import save_caffemodel
from mgcaffe.errors import DataError
from mgcaffe.tools.convert.conversion import convert
from mgcaffe.tools.convert.model import read_model
from mgcaffe.tools.convert.torch_files import TorchModule
from mgcaffe.tools.convert.torch_training import TorchTraining
from mgcaffe.tools.convert.training_step import CannotTrain, compare_steps
from mgcaffe.tools.main import main
from tests.support.onnxkit import fill_at_random

pytestmark = pytest.mark.slow

SHAPE = (3, 2, 4, 4)
CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, normalized=False):
        super().__init__()
        torch.manual_seed(1)
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 5)
        self.last = nn.BatchNorm1d(5) if normalized else nn.Dropout()
        self.conv.bias.requires_grad_(False)
        self.register_buffer("std", torch.tensor(0.3))

    def forward(self, x):
        return self.last(self.fc(self.bn(self.conv(x / self.std)).relu().mean((2, 3))))

class Scores(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 1, 1)

    def forward(self, x):
        return self.conv(x)

class Heads(Net):
    def forward(self, x):
        return x.mean((2, 3)), super().forward(x)

class Inner(nn.Module):
    def forward(self, x):
        y = x.tanh()
        return y, y * 2

class Overwritten(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x):
        return self.fc(x).sigmoid().mul_(2)

def normalized():
    return Net(True)
"""

NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 3 dim: 2 dim: 4 dim: 4 } } }
layer { name: "neck" type: "PReLU" bottom: "data" top: "neck" }
layer { name: "conv" type: "Convolution" bottom: "neck" top: "conv" param { lr_mult: 0 } propagate_down: false
  convolution_param { num_output: 6 kernel_size: 3 pad: 1 } }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }
layer { name: "scale" type: "Scale" bottom: "conv" top: "conv" }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" relu_param { negative_slope: 0.1 } }
layer { name: "norm" type: "LRN" bottom: "conv" top: "norm" lrn_param { local_size: 5 alpha: 0.0001 } }
layer { name: "power" type: "Power" bottom: "norm" top: "power" power_param { scale: 40.3 } }
layer { name: "ip" type: "InnerProduct" bottom: "power" top: "ip"
  inner_product_param { num_output: 5 transpose: true } }
layer { name: "drop" type: "Dropout" bottom: "ip" top: "ip" }
layer { name: "cost" type: "EuclideanLoss" bottom: "ip" bottom: "ip" top: "cost" }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Side:
    """A side whose step is known."""

    def __init__(self, loss, **gradients):
        self.loss, self.gradients = loss, gradients

    def step(self, inputs, labels, output, take):
        assert inputs == {} and output == "fc" and labels.shape == (2, 7) and 0 <= labels.min() <= labels.max() < 3
        for name, values in self.gradients.items():
            take((name[0], int(name[1])), np.array(values, np.float64))
        return self.loss


def compared(ours, theirs):
    return compare_steps(lambda: ours, lambda: theirs, {}, ("fc", (2, 3, 7)))


def test_gradients_are_compared_relative_to_their_layer():
    step = compared(Side(2.0, a0=[[4, -8]], a1=[1e-9], b0=[0]), Side(2.0, a0=[4, -8], a1=[3e-9], b0=[0]))
    assert step.holds and [each.name for each in step.gradients] == ["a/1", "a/0", "b/0"]
    assert step.largest_relative == step.gradients[0].largest_relative == pytest.approx(2e-9 / 8)
    assert "losses 2 and 2, relative difference 0.00e+00" in str(step)


def test_a_layer_whose_gradients_are_rounding_alone_holds():
    step = compared(Side(2.0, a0=[4, -8], b0=[3e-17]), Side(2.0, a0=[4, -8], b0=[-1e-17]))
    assert step.holds and step.gradients[0].largest_relative == pytest.approx(4e-17 / 8e-6)
    assert not compared(Side(2.0, a0=[4, -8], b0=[3e-6]), Side(2.0, a0=[4, -8], b0=[-1e-6])).holds


def test_gradients_that_are_all_rounding_alone_prove_nothing():
    with pytest.raises(CannotTrain, match="no gradient is above 1e-12: they are rounding errors of zero"):
        compared(Side(2.0, a0=[3e-17], b0=[0]), Side(2.0, a0=[-1e-17], b0=[2e-16]))
    for other in (Side(2.1, a0=[3e-17]), Side(2.0, a0=[float("nan")]), Side(2.0, a0=[1e-9])):
        assert not compared(Side(2.0, a0=[3e-17]), other).holds


@pytest.mark.parametrize("place", [0, 5, 8])
def test_gradients_in_parts_are_compared_to_the_last(monkeypatch, place):
    monkeypatch.setattr("mgcaffe.tools.convert.training_step._CHUNK", 4)
    values = np.arange(9.0) - 4
    other = values.copy()
    other[place] += 1
    rest = {"a0": np.ones(5), "b1": np.ones(3)}
    assert compared(Side(1.0, **rest, b0=values), Side(1.0, b0=values, **rest)).largest_relative == 0
    step = compared(Side(1.0, **rest, b0=values), Side(1.0, b0=other, **rest))
    assert step.gradients[0].name == "b/0" and step.gradients[0].largest_absolute == 1


def test_what_one_side_lacks_counts_as_zeros_and_a_wrong_loss_is_seen():
    for sides in ((Side(1.0, a0=[1]), Side(1.0, a0=[1], b0=[0.5])), (Side(1.0, a0=[1], b0=[0.5]), Side(1.0, a0=[1]))):
        step = compared(*sides)
        assert not step.holds and step.gradients[0].name == "b/0" and step.gradients[0].largest_relative == 1
    assert compared(Side(1.0, a0=[1], b0=[0]), Side(1.0, a0=[1])).holds
    step = compared(Side(1.0, a0=[1]), Side(1.0 + 1e-8, a0=[1]))
    assert not step.holds and step.largest_relative == pytest.approx(1e-8)
    step = compared(Side(1.0, a0=[1]), Side(float("nan"), a0=[float("nan")]))
    assert not step.holds
    assert json.loads(json.dumps(step.document(), allow_nan=False)) == {
        "loss": [1.0, None],
        "largest_relative": None,
        "gradients": [{"name": "a/0", "largest_absolute": None, "largest_relative": None}],
    }
    with pytest.raises(DataError, match="gradient a/0 has 2 values, on the other side 1"):
        compared(Side(1.0, a0=[1, 2]), Side(1.0, a0=[1]))
    with pytest.raises(CannotTrain, match="the loss depends on no parameter that is trained"):
        compared(Side(1.0), Side(1.0))


def test_the_proof_of_a_module_has_its_training_step(folder, capsys):
    words = ["convert", "nets.py:Net", "net.prototxt", "--input_shape", "3,2,4,4", "--json", "proof.json"]
    assert main(words) == 0
    assert "\none training step in float64: losses 1." in capsys.readouterr().out
    step = json.loads((folder / "proof.json").read_text())["training_step"]
    assert {each["name"] for each in step["gradients"]} == {"conv/0", "bn.scale/0", "bn.scale/1", "fc/0", "fc/1"}
    assert step["largest_relative"] < 1e-12 and step["loss"][0] == pytest.approx(step["loss"][1], rel=1e-14)


def test_a_net_that_computes_the_same_but_trains_otherwise_is_caught(folder, capsys, monkeypatch):
    model = TorchModule.model

    def frozen(self):
        made = model(self)
        made.source.param.layer[-2].param.add(lr_mult=0)
        assert made.source.param.layer[-2].name == "fc"
        return made

    monkeypatch.setattr(TorchModule, "model", frozen)
    words = ["convert", "nets.py:Net", "net.prototxt", "--input_shape", "3,2,4,4", "--json", "proof.json"]
    assert main(words) == 65
    assert capsys.readouterr().out.endswith(
        "one training step of the two sides differs by more than 1e-09: net.prototxt was not written;"
        " what was built is net.unproven.prototxt, net.unproven.caffemodel\n"
    )
    assert sorted(path.name for path in folder.glob("net.*")) == ["net.unproven.caffemodel", "net.unproven.prototxt"]
    proof = json.loads((folder / "proof.json").read_text())
    assert proof["largest_relative"] < 1e-5 and proof["training_step"]["gradients"][0]["name"] == "fc/0"
    result = convert("nets.py:Net", "net.prototxt", input_shape=SHAPE, check=False)
    assert result.holds and result.training is None


@pytest.mark.parametrize(
    ("module", "shape", "why"),
    [
        ("normalized", (2, 2, 4, 4), "layer 'last' would normalize by 2 value(s) a channel; a batch of at least 3"),
        ("Scores", (2, 2, 4, 4), "no output has a score for each of several classes"),
        ("Overwritten", (2, 4), "PyTorch cannot compute it: one of the variables needed for gradient"),
    ],
)  # fmt: skip
def test_a_note_says_why_no_step_was_compared(folder, module, shape, why):
    result = convert(f"nets.py:{module}", "net.prototxt", input_shape=shape)
    assert result.holds and result.training is None and result.document()["training_step"] is None
    assert result.notes[0].startswith(f"the training step was not compared: {why}")


def test_outputs_that_the_net_has_as_blobs_alone_are_named(folder):
    notes = convert("nets.py:Inner", "net.prototxt", input_shape=SHAPE).notes
    said = "outputs that layers read as well, which the net therefore has as blobs, but not as outputs: tanh"
    assert notes == ("the training step was not compared: no parameter is trained", said)


def test_the_loss_is_of_an_output_that_depends_on_parameters(folder):
    """A module that is written returns its outputs in the order of their blobs' layers, such ones first."""
    pytest.importorskip("safetensors")
    for source, target in (("nets.py:Heads", "net.prototxt"), (["net.prototxt", "net.caffemodel"], "out.py")):
        result = convert(source, target, input_shape=SHAPE)
        assert result.training is not None and "fc/0" in {each.name for each in result.training.gradients}


def test_gradients_that_pytorch_computes_wrongly_are_caught(folder, monkeypatch):
    step = TorchTraining.step

    def wrong(self, inputs, labels, output, take):
        return step(self, inputs, labels, output, lambda place, values: take(place, values * (1 + 1e-8)))

    monkeypatch.setattr(TorchTraining, "step", wrong)
    result = convert("nets.py:Net", "net.prototxt", input_shape=SHAPE)
    assert result.values_hold and not result.holds and not (folder / "net.prototxt").exists()


def test_a_net_that_becomes_a_module_has_its_training_step(folder):
    """Frozen parameters, losses, numbers that are no float32, defaults left out, probabilities, transposed weights."""
    pytest.importorskip("safetensors")
    (folder / "net.prototxt").write_text(NET)
    net = read_model("net.prototxt").build(seed=1)
    fill_at_random(net)
    save_caffemodel(net, "net.caffemodel")
    result = convert(["net.prototxt", "net.caffemodel"], "out.py")
    assert result.holds and result.training is not None and result.training.largest_relative < 1e-12
    assert {each.name for each in result.training.gradients} == {
        "conv/0",
        "conv/1",
        "scale/0",
        "ip/0",
        "ip/1",
        "neck/0",
    }
    result = convert(["net.prototxt", "net.caffemodel"], "out.pt2")
    assert result.holds and result.training is None and not result.notes


def test_layers_of_one_name_keep_their_gradients_apart(tmp_path, monkeypatch):
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(BETWEEN.replace('name: "ip"', 'name: "conv"') % 'type: "ReLU"')
    result = convert("net.prototxt", "out.py")
    assert result.holds and result.training is not None
    assert sorted(each.name for each in result.training.gradients) == ["conv/0", "conv/1", "conv/2", "conv/3"]


BETWEEN = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 3 dim: 2 dim: 4 dim: 4 } } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 3 kernel_size: 3 pad: 1 weight_filler { type: "xavier" } } }
layer { name: "l" bottom: "conv" top: "l" %s }
layer { name: "ip" type: "InnerProduct" bottom: "l" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
"""


@pytest.mark.parametrize(
    "layer",
    [
        'type: "HardSigmoid"',
        'type: "HardSigmoid" hard_sigmoid_param { alpha: 0.2 beta: 0.45 }',
        'type: "MVN"',
        'type: "MVN" mvn_param { across_channels: true eps: 0.1 }',
        'type: "Power" power_param { power: -2 scale: 0 shift: 0.08121 }',
    ],
)
def test_layers_whose_numbers_or_gradients_are_not_pytorchs_train_the_same(tmp_path, monkeypatch, layer):
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(BETWEEN % layer)
    result = convert("net.prototxt", "out.py")
    assert result.holds and result.training is not None and result.training.largest_relative < 1e-12


def test_a_net_with_layers_for_training_alone_is_compared_as_it_is_converted(tmp_path, monkeypatch):
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    data = """layer { name: "batches" type: "DummyData" top: "data" top: "label" include { phase: TRAIN }
      dummy_data_param { shape { dim: 3 dim: 2 dim: 4 dim: 4 } shape { dim: 3 } data_filler { value: 3 } } }"""
    loss = """layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss"
      exclude { phase: TEST } }"""
    net = BETWEEN.replace('type: "Input"', 'type: "Input" exclude { phase: TRAIN }') % 'type: "ReLU"'
    (tmp_path / "net.prototxt").write_text(data + net + loss)
    result = convert("net.prototxt", "out.py")
    assert result.holds and result.training is not None and result.training.largest_relative < 1e-12


@pytest.mark.parametrize(
    "layer",
    [
        'type: "Pooling" pooling_param { pool: STOCHASTIC kernel_size: 2 }',
        'type: "SPP" spp_param { pool: STOCHASTIC pyramid_height: 2 }',
    ],
)
def test_what_draws_at_random_in_training_is_not_compared(tmp_path, monkeypatch, layer):
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(BETWEEN % layer)
    result = convert("net.prototxt", "out.py")
    assert result.holds and result.training is None
    assert "the training step was not compared: layer 'l' draws pixels at random" in result.notes[-1]


def test_what_pytorch_refuses_to_train_is_not_compared(tmp_path, monkeypatch):
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(BETWEEN % 'type: "BatchNorm" batch_norm_param { eps: 0 }')
    result = convert("net.prototxt", "out.py")
    assert result.holds and result.training is None
    assert "the training step was not compared: PyTorch cannot compute it: ValueError: batch_norm" in result.notes[-1]


def test_states_that_caffe_does_not_differentiate_take_no_part(tmp_path, monkeypatch):
    pytest.importorskip("safetensors")
    monkeypatch.chdir(tmp_path)
    inputs = {"x": (5, 3, 6), "cont": (5, 3), "h0": (1, 3, 4), "c0": (1, 3, 4)}
    text = "".join(
        f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{'
        f" {' '.join(f'dim: {size}' for size in shape)} }} }} }}\n"
        for name, shape in inputs.items()
    )
    text += """layer { name: "l" type: "LSTM" bottom: "x" bottom: "cont" bottom: "h0" bottom: "c0" top: "y" top: "hT"
      top: "cT" recurrent_param { num_output: 4 expose_hidden: true weight_filler { type: "gaussian" std: 0.4 } } }"""
    (tmp_path / "net.prototxt").write_text(text)
    result = convert("net.prototxt", "net.py")
    assert result.holds and result.training is not None and len(result.training.gradients) == 3
    reads = 'layer { name: "tanh" type: "TanH" bottom: "hT" top: "tanh" }\n'
    (tmp_path / "net.prototxt").write_text(text + reads)
    result = convert("net.prototxt", "net.py")
    assert result.holds and result.training is None
    assert "no gradient flows through 'hT', the state of layer 'l', as in Caffe" in str(result)
