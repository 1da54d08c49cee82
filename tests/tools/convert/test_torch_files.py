"""`engine convert` and `engine compare` with modules of PyTorch."""

import json

import numpy as np
import pytest
import torch

import mgcaffe
from mgcaffe.prototxt import read_net
from mgcaffe.tools.convert.comparison import compare_models
from mgcaffe.tools.main import main

pytestmark = pytest.mark.slow

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.conv = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        x.mul_(2)
        return self.fc(self.bn(self.conv(x)).relu().mean((2, 3)))

class RunningProduct(nn.Module):
    def forward(self, x):
        return x.cumprod(1)

class Pixels(nn.Module):
    def forward(self, x):
        y = nn.functional.pixel_unshuffle(nn.functional.pixel_shuffle(nn.functional.glu(x, 1), 2), 2)
        return torch.cat([y, y.mean(1, keepdim=True).expand(-1, 4, -1, -1)], 1).repeat(1, 1, 1, 2)

class Drops(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Dropout(0.1), nn.Dropout2d(0.2), nn.AlphaDropout(0.3), nn.Dropout2d(0.0), nn.Tanh())
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_module_becomes_a_net_and_its_weights_with_proof(folder, capsys):
    words = ["convert", "nets.py:Net", "net.prototxt", "--input_shape", "2,3,6,6", "--json", "proof.json"]
    assert main(words) == 0
    assert sorted(path.name for path in folder.glob("net.*")) == ["net.caffemodel", "net.prototxt"]
    assert "wrote net.prototxt" in capsys.readouterr().out
    proof = json.loads((folder / "proof.json").read_text())
    assert proof["largest_relative"] < 1e-5 and {each["name"] for each in proof["blobs"]} >= {"conv", "conv@conv", "fc"}
    net = read_net("net.prototxt")
    types = ["Input", "Power", "Convolution", "BatchNorm", "Scale", "ReLU", "Pooling", "Flatten", "InnerProduct"]
    assert net.name == "Net" and [layer.type for layer in net.layer] == types
    assert not any(layer.blobs for layer in net.layer)


def test_what_moves_and_repeats_values_goes_out_again_and_comes_back(folder):
    shape = (2, 8, 3, 3)
    assert mgcaffe.convert("nets.py:Pixels", "net.prototxt", input_shape=shape).holds
    assert mgcaffe.convert("net.prototxt", "out.py").holds
    assert mgcaffe.convert("out.py:load", "back.prototxt", input_shape=shape).holds
    types = [[layer.type for layer in read_net(path).layer] for path in ("net.prototxt", "back.prototxt")]
    assert types[0] == types[1] and types[0].count("Tile") == 2


def test_what_drops_as_no_layer_does_is_named(folder):
    result = mgcaffe.convert("nets.py:Drops", "net.prototxt", input_shape=(2, 3, 6, 6))
    assert result.notes[0] == "left out, since no layer drops as they do in training: '1', '2'"


def test_weights_are_written_as_hdf5_where_their_name_says_so(folder):
    result = mgcaffe.convert("nets.py:Net", "net.caffemodel.h5", input_shape=(2, 3, 6, 6))
    assert result.holds and (folder / "net.prototxt").is_file() and (folder / "net.caffemodel.h5").is_file()


def test_an_exported_program_is_the_same_net(folder):
    from mgcaffe.tools.convert.torch_in.program import load_program

    torch.export.save(load_program("nets.py:Net", (2, 3, 6, 6)), "net.pt2")
    result = mgcaffe.convert("net.pt2", "net.prototxt")
    assert result.holds and result.differences
    again = compare_models(["net.pt2"], ["net.prototxt", "net.caffemodel"])
    assert again.holds and {each.name for each in again.differences} >= {"mul", "conv", "mean.flatten", "fc"}


def test_what_of_attention_and_tables_is_not_as_in_training_is_noted(folder, capsys):
    (folder / "text.py").write_text(
        "import torch\nfrom torch import nn\n\nclass Text(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.words = nn.Embedding(11, 8, padding_idx=0)\n"
        "        self.heads = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True)\n\n"
        "    def forward(self, ids):\n        x = self.words(ids)\n        x = self.heads(x, x, x)[0]\n"
        "        return nn.functional.linear(x.mean(1), self.words.weight)\n"
    )
    assert main(["convert", "text.py:Text", "net.prototxt", "--input_shape", "2,5"]) == 0
    said = capsys.readouterr().out
    assert "left out: the dropout of attention's weights in 'heads'" in said
    assert "the row of padding_idx stays what it is, also where the table learns elsewhere: 'words'" in said


def test_a_program_without_inputs_is_refused(folder, capsys):
    class Nothing(torch.nn.Module):
        def forward(self):
            return torch.ones(2, 3).tanh()

    torch.export.save(torch.export.export(Nothing(), (), strict=False), "nothing.pt2")
    assert main(["convert", "nothing.pt2", "net.prototxt"]) == 65
    assert "output 'tanh' is not computed from the input by any layer" in capsys.readouterr().err


def test_modules_that_cannot_become_a_net_can_be_compared(folder):
    shape = [("", (2, 3, 4, 4))]
    result = compare_models(["nets.py:RunningProduct"], ["nets.py:RunningProduct"], input_shapes=shape)
    assert [each.name for each in result.differences] == ["cumprod"] and result.holds


def test_a_net_that_does_not_compute_the_same_gets_another_name(folder, capsys, monkeypatch):
    from mgcaffe.tools.convert.torch_side import TorchSide

    run = TorchSide.run
    monkeypatch.setattr(TorchSide, "run", lambda self, inputs: {k: v * 1.01 for k, v in run(self, inputs).items()})
    code = main(["convert", "nets.py:Net", "net.prototxt", "--input_shape", "2,3,6,6"])
    found = sorted(path.name for path in folder.glob("net*.*") if path.suffix != ".py")
    assert code == 65 and found == ["net.unproven.caffemodel", "net.unproven.prototxt"]
    assert "net.prototxt was not written" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["nets.py:RunningProduct", "net.prototxt", "--input_shape", "2,3,4,4"], 65, "nets.py:19:1: no layer computes"),
        (["nets.py:Net", "net.prototxt"], 2, "the shape of the input is not known"),
        (["nets.py:Net", "net.prototxt", "--input_shape", "2,5,6,6"], 65, "nets.py:15:1: torch.export refuses"),
        (["nets.py:Net", "w.caffemodel", "net.prototxt", "--input_shape", "2,3,6,6"], 2, "does not belong"),
        (["nets.py:Nett", "net.prototxt", "--input_shape", "2,3,6,6"], 2, "nets.py has no 'Nett'"),
    ],
)  # fmt: skip
def test_mistakes_get_one_message_and_leave_no_file(folder, capfd, words, code, message):
    assert main(["convert", *words]) == code
    said = capfd.readouterr().err
    assert message in said and "Traceback" not in said
    assert not list(folder.glob("net.*"))


def test_the_tables_of_both_sides_name_the_same_values(folder):
    from mgcaffe.tools.convert.caffe_side import CaffeSide
    from tests.support.torchkit import read_module

    model = read_module("nets.py:Net", (2, 3, 6, 6))
    side = CaffeSide(model.build())
    values = side.run({"data": np.ones((2, 3, 6, 6), np.float32)})
    assert set(model.names) - {"data"} <= set(values)
