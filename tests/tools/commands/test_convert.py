"""`engine convert` and `engine compare`: what they print, their exit codes, the JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mgcaffe.tools.main import main

pytestmark = pytest.mark.slow

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

NET = """name: "small"
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 6 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }
"""
RECURRENT = """layer { name: "x" type: "Input" top: "x" top: "cont"
  input_param { shape { dim: 4 dim: 3 dim: 5 } shape { dim: 4 dim: 3 } } }
layer { name: "rnn" type: "RNN" bottom: "x" bottom: "cont" top: "y" recurrent_param { num_output: 2 } }
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch, no_job):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "rnn.prototxt").write_text(RECURRENT)
    return tmp_path


def engine(capsys, *words):
    """Run a command; return its code, what it printed and its errors."""
    code = main(list(words))
    return code, *capsys.readouterr()


def test_a_conversion_prints_its_proof_and_writes_it_as_json(folder, capsys):
    code, out, _ = engine(capsys, "convert", "net.prototxt", "net.onnx", "--json=proof.json", "--input_shape=4,6")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "no weights are given: those of the fillers are used (seed 0)"
    assert lines[1].split() == ["blob", "absolute", "relative"]
    assert lines[-1] == "wrote net.onnx"
    proof = json.loads((folder / "proof.json").read_text())
    assert proof["largest_relative"] <= 1e-4
    assert {blob["name"] for blob in proof["blobs"]} == {"ip", "prob"}


def test_a_proof_that_fails_ends_with_code_65(folder, capsys):
    code, out, _ = engine(capsys, "convert", "net.prototxt", "net.onnx", "--tolerance=1e-12")
    assert code == 65
    assert out.endswith(
        "the two sides differ by more than 1e-12: net.onnx was not written; what was built is net.unproven.onnx\n"
    )
    assert (folder / "net.unproven.onnx").exists() and not (folder / "net.onnx").exists()


def test_a_side_that_is_not_finite_gives_valid_json(folder, capsys, monkeypatch):
    from mgcaffe.tools.convert.onnx_side import OnnxSide

    right = OnnxSide.run
    monkeypatch.setattr(OnnxSide, "run", lambda self, x: {k: v * np.float32(np.nan) for k, v in right(self, x).items()})
    code, out, _ = engine(capsys, "convert", "net.prototxt", "net.onnx", "--json=proof.json")
    assert code == 65 and "inf" in out

    def fail(constant):
        raise AssertionError(f"{constant} is no JSON")

    assert json.loads((folder / "proof.json").read_text(), parse_constant=fail)["largest_relative"] is None


def test_no_check_is_said(capsys):
    code, out, _ = engine(capsys, "convert", "net.prototxt", "net.onnx", "--no_check")
    assert code == 0 and "not compared with its source (--no_check)" in out
    code, _, error = engine(capsys, "convert", "net.prototxt", "net.onnx", "--no_check", "--json=x")
    assert code == 2 and "--no_check and --json exclude each other" in error


def test_what_onnx_cannot_express_is_refused_with_its_line(folder, capsys):
    code, _, error = engine(capsys, "convert", "rnn.prototxt", "rnn.onnx")
    assert code == 65
    assert error.startswith("error: rnn.prototxt:3:1: ONNX cannot express it: its state goes on")
    assert "layer 'rnn', type RNN" in error and "--allow=carried_state" in error
    assert not list(folder.glob("*.onnx"))
    assert engine(capsys, "convert", "rnn.prototxt", "rnn.onnx", "--allow=carried_state")[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("convert", "net.prototxt"), 2, "convert takes a model and the file to write, not 1 name(s)"),
        (("convert", "net.prototxt", "net.onx"), 2, "the name 'net.onx' does not say which format to write"),
        (("convert", "none.prototxt", "net.onnx"), 65, "none.prototxt: no such file"),
        (("convert", "net.prototxt", "none.caffemodel", "net.onnx"), 65, "none.caffemodel: no such file"),
        (("convert", "net.prototxt", "a.caffemodel", "b.caffemodel", "net.onnx"), 2, "2 models are given to convert"),
        (("convert", "net.prototxt", "none/net.onnx"), 73, "cannot write none/net.unproven.onnx: No such file"),
        (("convert", "net.prototxt", "net.onnx", "--allow=x"), 2, "--allow=x: there is nothing of this name to allow"),
        (("convert", "net.prototxt", "net.onnx", "--tolerance=0"), 2, "0 is not above 0"),
        (("compare", "net.prototxt"), 2, "compare takes two models, not 1"),
        (("compare", "net.prototxt", "none.onnx"), 65, "cannot read none.onnx: No such file or directory"),
        (("compare", "net.prototxt", "rnn.prototxt"), 65, "one model has the inputs data, the other x, cont"),
    ],
)
def test_a_mistake_gets_one_message(words, code, said, capsys):
    found, _, error = engine(capsys, *words)
    assert (found, "Traceback" in error) == (code, False)
    assert said in error


def test_two_models_are_compared(folder, capsys):
    assert engine(capsys, "convert", "net.prototxt", "net.onnx", "--seed=3")[0] == 0
    code, out, _ = engine(capsys, "compare", "net.prototxt", "net.onnx", "--seed=3", "--json=c.json")
    assert code == 0 and {line.split()[0] for line in out.splitlines()[2:]} == {"ip", "prob"}
    assert json.loads((folder / "c.json").read_text())["largest_relative"] <= 1e-5
    code, out, _ = engine(capsys, "compare", "net.prototxt", "net.onnx", "--seed=4")
    assert code == 65 and out.endswith("the two models differ by more than 0.0001\n")


def test_a_missing_package_is_named(capsys, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    code, _, error = engine(capsys, "convert", "net.prototxt", "net.onnx")
    assert code == 2 and "onnx is not installed\n  pip install 'mgcaffe[onnx]'" in error
