"""`engine convert ... OUT.py` and `OUT.pt2`: the files, the proof, reading them again, and what is refused."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from mgcaffe.errors import EXIT_BAD_INPUT, EngineError, NetError, UsageError
from mgcaffe.prototxt import read_net, write_binary
from mgcaffe.tools.convert.comparison import compare_models
from mgcaffe.tools.convert.conversion import convert
from mgcaffe.tools.convert.model import read_model
from mgcaffe.tools.main import main
from tests.support.netkit import inputs
from tests.support.onnxkit import fill_at_random
from tests.support.paths import MODELS

pytestmark = pytest.mark.slow

NET = 'name: "net" ' + inputs(data=(2, 3, 6, 6)) + (
    'layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"'
    " convolution_param { num_output: 4 kernel_size: 3 } }"
    'layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "conv" }'
    'layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }'
    'layer { name: "parts" type: "Slice" bottom: "conv" top: "a" top: "b" slice_param { slice_point: 1 } }'
    'layer { name: "join" type: "Concat" bottom: "b" bottom: "a" top: "join" }'
    'layer { name: "same" type: "Power" bottom: "join" top: "same" }'
    'layer { name: "spp" type: "SPP" bottom: "same" top: "spp" spp_param { pyramid_height: 2 } }'
    'layer { name: "ip" type: "InnerProduct" bottom: "spp" top: "ip" inner_product_param { num_output: 5 } }'
)  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a net and its weights."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    net = read_model("net.prototxt").build(seed=1)
    fill_at_random(net)
    write_binary(net.to_proto(), "net.caffemodel")
    return tmp_path


def names(folder):
    return sorted(path.name for path in folder.iterdir() if path.name not in ("net.prototxt", "net.caffemodel"))


def test_a_python_file_is_written_with_its_weights_and_runs_by_itself(folder, capsys, monkeypatch):
    assert main(["convert", "net.prototxt", "net.caffemodel", "out.py", "--json", "proof.json"]) == 0
    assert capsys.readouterr().out.endswith("wrote out.py\nwrote out.safetensors\n")
    assert names(folder) == ["out.py", "out.safetensors", "proof.json"]
    proof = json.loads((folder / "proof.json").read_text())
    compared = {each["name"] for each in proof["blobs"]}
    assert compared == {"conv@conv", "conv@bn", "conv", "a", "b", "join", "same", "spp", "ip"}
    assert proof["largest_relative"] < 1e-6
    tree = ast.parse((folder / "out.py").read_text())
    imported = {getattr(node, "module", None) or node.names[0].name for node in ast.walk(tree)
                if isinstance(node, (ast.Import, ast.ImportFrom))}  # fmt: skip
    assert imported == {"pathlib", "torch", "torch.nn", "safetensors.torch"}
    monkeypatch.syspath_prepend(folder)
    net = importlib.import_module("out").load()
    assert not net.training and net(torch.zeros(5, 3, 6, 6)).shape == (5, 5)
    assert list(net.state_dict())[:3] == ["conv.weight", "conv.bias", "bn.running_mean"]
    assert not any(parameter.is_meta or not parameter.requires_grad for parameter in net.parameters())


def test_the_weights_are_what_safetensors_itself_would_write(folder):
    from safetensors.torch import load_file, save_file

    convert(["net.prototxt", "net.caffemodel"], "out.py", check=False)
    tensors = load_file("out.safetensors")
    save_file(tensors, "again.safetensors", metadata={"format": "pt"})
    data = [(folder / name).read_bytes() for name in ("out.safetensors", "again.safetensors")]
    sizes = [int.from_bytes(each[:8], "little") for each in data]
    values = sum(tensor.nbytes for tensor in tensors.values())
    assert [len(each) - 8 - size for each, size in zip(data, sizes, strict=True)] == [values, values]
    weights = read_net("net.caffemodel").layer[1].blobs[0]
    np.testing.assert_array_equal(tensors["conv.weight"].numpy().reshape(-1), np.array(weights.data, np.float32))
    assert "Not compared with its source (--no_check)." in (folder / "out.py").read_text()


def test_a_program_is_written_and_its_values_are_compared(folder):
    result = convert(["net.prototxt", "net.caffemodel"], "out.pt2")
    assert result.holds and names(folder) == ["out.pt2"]
    # `same` is the value of `join`, so it has no node of its own.
    assert {each.name for each in result.differences} == {
        "conv@conv", "conv@bn", "conv", "a", "b", "join", "spp", "ip",
    }  # fmt: skip
    assert torch.export.load("out.pt2").module()(torch.zeros(2, 3, 6, 6)).shape == (2, 5)


def test_values_that_other_ones_of_their_layer_are_made_of_are_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(
        inputs(image=(2, 3, 4, 4), state=(1, 2, 3), gates=(1, 2, 12), goes_on=(1, 2))
        + 'layer { name: "pool" type: "Pooling" bottom: "image" top: "pool" pooling_param { global_pooling: true } }'
        'layer { name: "unit" type: "LSTMUnit" bottom: "state" bottom: "gates" bottom: "goes_on" top: "c" top: "h" }'
        'layer { name: "sum" type: "Eltwise" bottom: "c" bottom: "h" top: "sum" }'
        'layer { name: "last" type: "LSTMUnit" bottom: "c" bottom: "gates" bottom: "goes_on" top: "c2" top: "h2" }'
        'layer { name: "tanh" type: "TanH" bottom: "h2" top: "tanh" }'
    )
    result = convert("net.prototxt", "out.pt2")
    assert result.holds
    assert {each.name for each in result.differences} == {"pool", "c", "h", "sum", "c2", "tanh", "h2"}


@pytest.mark.parametrize("target", ["out.py", "out.pt2"])
def test_where_the_proof_fails_the_files_keep_another_name(folder, target, capsys, monkeypatch):
    from mgcaffe.tools.convert import module_side

    right = module_side._array
    monkeypatch.setattr(module_side, "_array", lambda tensor: right(tensor) + np.float32(0.5))
    monkeypatch.setattr(
        module_side.TorchSide, "run", lambda self, inputs: dict.fromkeys(self.outputs, np.zeros((2, 5)))
    )
    assert main(["convert", "net.prototxt", "net.caffemodel", target]) == EXIT_BAD_INPUT
    assert f"{target} was not written; what was built is out.unproven." in capsys.readouterr().out
    assert {name.split(".")[1] for name in names(folder)} == {"unproven"}


def test_lenet_goes_out_and_comes_in_again(folder):
    convert(MODELS / "lenet" / "deploy.prototxt", "lenet.py", input_shape=(2, 1, 28, 28))
    result = convert("lenet.py:load", "back.prototxt", input_shape=(2, 1, 28, 28))
    assert result.holds
    types = [[layer.type for layer in read_net(path).layer] for path in
             ("back.prototxt", MODELS / "lenet" / "deploy.prototxt")]  # fmt: skip
    assert [name for name in types[0] if name != "Flatten"] == types[1]
    shape = [("", (2, 1, 28, 28))]
    again = compare_models(["lenet.py:load"], ["back.prototxt", "back.caffemodel"], input_shapes=shape)
    assert again.holds and len(again.differences) >= 8


def test_a_missing_package_is_named_with_the_command_that_installs_it(folder, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "safetensors" else find(name))
    with pytest.raises(UsageError, match="safetensors is not installed\n  pip install 'mgcaffe\\[safetensors\\]'"):
        convert("net.prototxt", "out.py")
    assert names(folder) == []


def test_files_that_cannot_be_written_are_named(folder):
    for target in ("none/out.py", "none/out.pt2"):
        with pytest.raises(EngineError, match=r"cannot write none/out\.unproven\.(safetensors|pt2)") as caught:
            convert("net.prototxt", target)
        assert caught.value.exit_code == 73


@pytest.mark.parametrize(
    ("layer", "target", "place", "said"),
    [
        ('type: "Dropout" bottom: "x" top: "y"\n phase: TRAIN', "py", "3:2", "it drops values at random"),
        (
            'type: "Dropout" bottom: "x" top: "y" dropout_param {\n scale_train: false }',
            "py", "3:2", "scale_train: false has tests scale its values down",
        ),
        (
            'type: "DummyData" top: "y"\n dummy_data_param { shape { dim: 2 } data_filler { type: "uniform" } }',
            "py", "3:38", "it draws values at random",
        ),
        (
            'type: "Pooling" bottom: "x" top: "y"\n phase: TRAIN pooling_param { pool: STOCHASTIC kernel_size: 2 }',
            "py", "3:2", "draws pixels at random",
        ),
        (
            'type: "Reshape" bottom: "x" top: "r" reshape_param { shape { dim: 2 dim: 2 dim: 2 dim: 2 dim: 2 } } }\n'
            'layer { name: "odd" type: "Convolution" bottom: "r" top: "y" convolution_param { num_output: 2'
            " kernel_size: 1 axis: 0 }",
            "py", "3:1", "its filters have 4 spatial axes",
        ),
        (
            'type: "Reshape" bottom: "x" top: "r" reshape_param { shape { dim: 2 dim: 2 dim: -1 } } }\n'
            'layer { name: "odd" type: "RNN" bottom: "r" bottom: "cont" top: "y" recurrent_param { num_output: 2 }',
            "pt2", "3:1", "its state goes on from one run to the next",
        ),
        (
            'type: "LayerNorm" bottom: "x" top: "n" param { name: "w" } }\n'
            'layer { name: "odd" type: "LayerNorm" bottom: "x" top: "y" param { name: "w" }',
            "py", "3:60", "it shares its parameters with a layer of another form",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_refused_with_its_place(tmp_path, monkeypatch, layer, target, place, said):
    monkeypatch.chdir(tmp_path)
    text = inputs(x=(2, 1, 4, 4), cont=(2, 2)).replace("\n", " ") + '\nlayer { name: "odd" ' + layer + " }"
    (tmp_path / "net.prototxt").write_text(text)
    with pytest.raises(NetError) as caught:
        convert("net.prototxt", f"out.{target}")
    assert caught.value.exit_code == EXIT_BAD_INPUT
    assert str(caught.value).startswith(f"net.prototxt:{place}: ") and said in str(caught.value)
    assert "layer 'odd'" in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["net.prototxt"]


def test_a_state_that_goes_on_is_written_into_a_program_only_where_that_is_allowed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(
        inputs(x=(2, 3, 5), cont=(2, 3))
        + 'layer { name: "l" type: "RNN" bottom: "x" bottom: "cont" top: "y" recurrent_param { num_output: 2 } }'
    )
    assert convert("net.prototxt", "out.pt2", allow=["carried_state"]).holds


def test_a_module_becomes_a_plain_file_but_not_in_the_place_of_its_own(folder):
    (folder / "mine.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = torch.nn.Linear(4, 2)\n"
        "    def forward(self, x):\n"
        "        return torch.relu(self.fc(x))\n"
    )
    with pytest.raises(UsageError, match=r"mine\.py would be written, but it is what is read"):
        convert("mine.py:Net", "mine.py", input_shape=(3, 4))
    result = convert("mine.py:Net", "plain.py", input_shape=(3, 4))
    assert result.holds and len(result.differences) == 2
    assert "fc = F.relu(fc)" in (folder / "plain.py").read_text()


def test_a_program_that_the_disk_has_no_room_for_is_one_message(folder):
    command = f"ulimit -f 8; exec {sys.executable} -m mgcaffe.tools.main convert net.prototxt net.caffemodel out.pt2"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    assert done.returncode == 73 and done.stderr == "error: cannot write out.unproven.pt2: File too large\n"
    assert names(folder) == []
