"""`engine summary`: figures, as wide as the terminal at most, and without automatic Split layers."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest

from mgcaffe.tools import main
from mgcaffe.tools import model as model_of_flags
from mgcaffe.tools.model import build_outline
from tests.support.engine_command import LMDB_NET
from tests.support.paths import IMAGE_MODELS, MODELS

pytestmark = pytest.mark.slow

_TWO_READERS = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "relu" type: "ReLU" bottom: "x" top: "x" }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" inner_product_param { num_output: 4 } }
layer { name: "b" type: "InnerProduct" bottom: "x" top: "b" inner_product_param { num_output: 4 } }
layer { name: "mine" type: "Split" bottom: "a" top: "a1" top: "a2" }
layer { name: "sum" type: "Eltwise" bottom: "a1" bottom: "b" top: "sum" }
"""


def _lines(capsys, model, *words):
    assert main.main(["summary", str(model), *words]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.fixture
def two_readers(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text(_TWO_READERS)
    return path


def test_summary_needs_no_data(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    assert main.main(["summary", "net.prototxt", "--input_shape=3,8,8", "--json=out.json"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"conv +Convolution +image +conv +4x2x4x4 +56 +3,456", text), text
    assert "Parameters: 221" in text
    figures = json.loads((folder / "out.json").read_text())
    totals = figures["totals"]
    # conv: 2 x (3 x 3 x 3) + 2 weights, each output 27 products; ip: 32 x 5 + 5.
    assert totals["parameters"] == 56 + 165
    assert totals["macs"] == 4 * (2 * 4 * 4 * 27 + 32 * 5)
    assert totals["macs_per_image"] * 4 == totals["macs"]
    assert totals["batch_size"] == 4
    blobs = 4 * 3 * 6 * 6 + 4 + 4 * 2 * 4 * 4 + 4 * 5 + 1
    assert totals["activation_bytes"] == 4 * blobs
    assert [row["name"] for row in figures["layers"]] == ["data", "conv", "ip", "loss"]


def test_tables_that_take_no_memory_for_gradients_are_said_apart(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "net.prototxt"
    fields = "embedding_bag_param { input_dim: 1024 num_output: 4 }"
    bag = f'layer {{ name: "bag" type: "EmbeddingBag" bottom: "x" top: "e" {fields} }}'
    path.write_text(f"{_TWO_READERS}{bag}\n")
    assert any("(16.0 KiB of them tables of EmbeddingBag)" in line for line in _lines(capsys, path))


def test_summary_without_a_shape_says_which_flag_helps(folder, capsys):
    (folder / "net.prototxt").write_text(LMDB_NET.replace("crop_size: 6", ""))
    assert main.main(["summary", "net.prototxt"]) == 65
    assert "--input_shape" in capsys.readouterr().err


@pytest.fixture(scope="module")
def outline_once():
    """Return `build_outline` for commands whose nets differ in their files alone: each is built once."""
    built = {}

    def outline(flags, path, phase, **options):
        if path not in built:
            built[path] = build_outline(flags, path, phase, **options)
        return built[path]

    return outline


@pytest.mark.parametrize("name", [*IMAGE_MODELS, "dlrm_small"])
@pytest.mark.parametrize("columns", ["", "80", "60"])
@pytest.mark.parametrize("words", [(), ("--all",)], ids=["", "all"])
def test_no_line_is_wider_than_the_output(capsys, monkeypatch, outline_once, name, columns, words):
    monkeypatch.setattr(model_of_flags, "build_outline", outline_once)
    if columns:
        monkeypatch.setenv("COLUMNS", columns)
    else:
        monkeypatch.delenv("COLUMNS", raising=False)
    model = MODELS / name / "train_val.prototxt"
    shape = ["--input_shape=3,256,256"] if name in IMAGE_MODELS else []
    lines = _lines(capsys, model, *shape, *words)
    assert max(map(len, lines)) <= int(columns or 100)
    text = "\n".join(lines)
    assert "Parameters: " in text and ("SoftmaxWithLoss" if shape else "SigmoidCrossEntropyLoss") in text


@pytest.mark.slow
def test_a_terminal_is_filled_no_further_than_its_width():
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 70, 0, 0))
    command = [sys.executable, "-m", "mgcaffe.tools.main", "summary", str(MODELS / "resnet50" / "deploy.prototxt")]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(command, stdout=child, stderr=subprocess.PIPE, env=environment) as process:
        os.close(child)
        output = b""
        while True:
            try:
                part = os.read(parent, 1 << 16)
            except OSError:  # Linux says EIO when the last writer has closed the terminal
                break
            if not part:
                break
            output += part
        errors = process.stderr.read()
    os.close(parent)
    assert process.returncode == 0, errors
    lines = output.decode().splitlines()
    assert len(lines) > 300 and 60 < max(map(len, lines)) <= 70


def test_every_blob_of_a_long_list_is_named(capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = _lines(capsys, MODELS / "googlenet" / "train_val.prototxt", "--input_shape=3,256,256")
    start = next(index for index, line in enumerate(lines) if line.startswith("inception_3a/output "))
    assert re.search(r"Concat +32x256x28x28 +24\.5 MiB$", lines[start])
    assert " ".join(line.strip() for line in lines[start + 1 : start + 3]).startswith(
        "inception_3a/1x1, inception_3a/3x3, inception_3a/5x5, inception_3a/pool_proj -> inception_3a/output"
    )


def test_automatic_splits_are_left_out_unless_asked_for(capsys, monkeypatch, two_readers):
    monkeypatch.setenv("COLUMNS", "200")
    lines = _lines(capsys, two_readers)
    assert not any("x_relu_0_split" in line for line in lines)
    assert "1 automatic Split layer left out (--all shows them)" in lines
    assert any(re.match(r"a +InnerProduct +x +a ", line) for line in lines)
    assert any(re.match(r"mine +Split +a +a1, a2 ", line) for line in lines)
    everything = _lines(capsys, two_readers, "--all")
    assert any(re.match(r"x_relu_0_split +Split +x +x_relu_0_split_0, x_relu_0_split_1 ", line) for line in everything)
    assert any(re.match(r"a +InnerProduct +x_relu_0_split_0 +a ", line) for line in everything)
    assert not any("left out" in line for line in everything)


def test_the_json_file_holds_all_layers_with_the_names_that_run(capsys, two_readers, tmp_path):
    _lines(capsys, two_readers, f"--json={tmp_path / 'out.json'}")
    layers = json.loads((tmp_path / "out.json").read_text())["layers"]
    assert [layer["name"] for layer in layers] == ["in", "relu", "x_relu_0_split", "a", "b", "mine", "sum"]
    assert layers[3]["bottoms"] == ["x_relu_0_split_0"]


def test_the_memory_plan_says_when_which_layer_needs_how_much(folder, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = _lines(capsys, "net.prototxt", "--input_shape=3,8,8", "--json=out.json")
    # conv makes 4x2x4x4 numbers, which ip multiplies its gradient by.
    assert any(re.match(r"conv +512 B +ip, backward ", line) for line in lines)
    assert any(line.startswith("Memory plan of training: ") for line in lines)
    plan = json.loads((folder / "out.json").read_text())["memory_plan"]
    assert [step["layers"] for step in plan["steps"]] == [["data"], ["conv"], ["ip"], ["loss"]]
    conv = plan["steps"][1]
    assert (conv["made"], conv["freed_after"], conv["freed_in_backward"]) == (512, "ip", True)
    assert plan["peak"]["bytes"] == max(max(step["forward"], step["backward"]) for step in plan["steps"])


def test_the_memory_plan_of_a_test_has_no_gradients(folder, capsys):
    lines = _lines(capsys, "net.prototxt", "--input_shape=3,8,8", "--phase=TEST")
    assert any(line.startswith("Memory plan of a pass: ") for line in lines)
    assert not any("backward" in line for line in lines if not line.startswith("layer "))
