"""What a user can name as a module, and the mistakes in it."""

import pytest
import torch

from mgcaffe.errors import DataError, EngineError, NetError, UsageError
from mgcaffe.tools.convert.format_tables import is_torch
from mgcaffe.tools.convert.torch_in.program import load_program
from tests.support.torchkit import read_module, types_of

CODE = """
import torch
from torch import nn
from helper import WIDTH

module = nn.Sequential(nn.Linear(WIDTH, 3), nn.ReLU())

class Net(nn.Module):
    def forward(self, x):
        return x @ torch.ones(7, 7)

def make():
    return module

def fails():
    raise ValueError("no such weights")

def nothing():
    return 3

number = 3

def leaves():
    raise SystemExit(0)

class Leaving(nn.Module):
    def forward(self, x):
        raise SystemExit(0)

class Pair(nn.Module):
    def forward(self, left, right, scale=None):
        return left + right.relu()

class Branch(nn.Module):
    def forward(self, x):
        return x.relu() if x.sum() > 0 else x

def sized(width):
    return nn.Linear(width, 3)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "nets.py").write_text(CODE)
    (tmp_path / "helper.py").write_text("WIDTH = 4\n")
    (tmp_path / "broken.py").write_text("def make(:\n")
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit()\n")
    (tmp_path / "lost.py").write_text("import no_such_package\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", ["make", "module"])
def test_a_function_or_a_module_of_a_file(folder, name):
    model = read_module(f"nets.py:{name}", (2, 4))
    assert model.source.param.name == name and types_of(model) == ["InnerProduct", "ReLU"]


def test_a_class_of_a_package():
    assert types_of(read_module("torch.nn:ReLU", (2, 4))) == ["ReLU"]


def test_an_exported_program(folder):
    torch.export.save(torch.export.export(torch.nn.Tanh(), (torch.zeros(2, 3),)), "net.pt2")
    model = read_module("net.pt2")
    assert model.source.param.name == "net" and types_of(model) == ["TanH"]
    assert load_program("net.pt2", (2, 3)) is not None
    with pytest.raises(UsageError, match=r"was exported for inputs of shape \(2, 3\), not \(2, 4\)"):
        load_program("net.pt2", (2, 4))


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("absent.py:make", DataError, r"cannot read absent.py: there is no such file"),
        ("absent.pt2", DataError, r"cannot read absent.pt2"),
        ("helper.pt2", DataError, r"helper.pt2 is no program that this PyTorch can read"),
        ("nets.py", UsageError, r"nets.py names no module\n"),
        ("nets.py:mak", UsageError, r"nets.py has no 'mak'\n.*it has .*make"),
        ("nets.py:nothing", UsageError, r"nets.py:nothing returns int, which is no nn.Module"),
        ("nets.py:number", UsageError, r"nets.py:number is no nn.Module, and cannot be called"),
        ("nets.py:fails", DataError, r"nets.py:16:1: nets.py:fails fails: ValueError: no such weights"),
        ("nets.py:leaves", DataError, r"nets.py:24:1: nets.py:leaves fails: SystemExit: 0"),
        ("leaves.py:make", DataError, r"leaves.py:2:1: leaves.py:make fails: SystemExit"),
        ("nets.py:Leaving", NetError, r"nets.py:28:1: torch.export refuses nets.py:Leaving: SystemExit: 0"),
        ("broken.py:make", DataError, r"broken.py:1:10: broken.py:make fails: SyntaxError"),
        ("lost.py:make", UsageError, r"lost.py:1:1: lost.py:make: No module named 'no_such_package'"),
        ("no_such_package:make", UsageError, r"No module named 'no_such_package'"),
        ("no_such_package:make", UsageError, r"^no_such_package:make: No module"),
        ("nets.py:sized", UsageError, r"^nets.py:sized is called without arguments, and needs width\n"),
        ("nets.py:Pair", UsageError, r"the shape of the input 'right' is not known\n.*--input_shape right="),
        ("nets.py:Net", NetError, r"nets.py:10:1: torch.export refuses nets.py:Net: .*reduction dim"),
    ],
)
def test_mistakes(folder, spec, error, message):
    (folder / "helper.pt2").write_text("no zip file")
    with pytest.raises(EngineError, match=message) as caught:
        load_program(spec, (2, 4))
    assert type(caught.value) is error


def test_what_torch_export_prints_beside_its_error_is_kept_back(folder, capfd):
    with pytest.raises(NetError, match=r"nets.py:\d+:1: torch.export refuses nets.py:Branch"):
        load_program("nets.py:Branch", (2, 4))
    assert capfd.readouterr() == ("", "")


def test_a_missing_shape(folder):
    with pytest.raises(UsageError, match=r"the shape of the input is not known\n.*--input_shape"):
        load_program("nets.py:make")


@pytest.mark.parametrize("shape", [(0, 4), (2**31, 4), (2, -4)])
def test_a_shape_that_no_blob_can_have(folder, shape):
    with pytest.raises(UsageError, match=r"^nets.py:make: no blob can have the shape "):
        load_program("nets.py:make", shape)


def test_several_inputs_have_shapes_by_name(folder):
    shapes = {"right": (2, 4), "left": (2, 4)}
    model = read_module("nets.py:Pair", shapes)
    assert [layer.top[0] for layer in model.source.param.layer[:2]] == ["left", "right"]
    with pytest.raises(UsageError, match=r"nets.py:Pair has no input 'middle'\n.*left, right"):
        load_program("nets.py:Pair", {**shapes, "middle": (2, 4)})
    torch.export.save(load_program("nets.py:Pair", shapes), "pair.pt2")
    assert load_program("pair.pt2", shapes) is not None
    with pytest.raises(UsageError, match=r"was exported for inputs of shape \(2, 4\), not \(3, 4\)"):
        load_program("pair.pt2", {"right": (3, 4)})
    with pytest.raises(UsageError, match=r"nets.py:module has no input 'image'"):
        load_program("nets.py:module", {"image": (2, 4)})
    assert load_program("nets.py:module", {"data": (2, 4)}) is not None


def test_names_of_modules_are_told_from_files(folder):
    assert all(is_torch(word) for word in ("nets.py:make", "a/b/nets.py:make", "torchvision.models:resnet18", "x.PT2"))
    assert not any(is_torch(word) for word in ("net.prototxt", "net.onnx", "nets.py", "a:b/c", ""))
    (folder / "a:b").write_text("")
    assert not is_torch("a:b")
