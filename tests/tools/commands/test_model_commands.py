"""`engine summary`, `time` and `test`: figures, lines, JSON, and nets whose data is not at hand."""

from __future__ import annotations

import json
import re

import pytest

from mgcaffe.engine.net import TEST, Net
from mgcaffe.errors import UsageError
from mgcaffe.prototxt import parse_net
from mgcaffe.tools import main
from mgcaffe.tools.model import apply_input_shapes, feed_noise

_LMDB_NET = """
layer {
  name: "data" type: "Data" top: "image" top: "label"
  transform_param { crop_size: 6 }
  data_param { source: "absent" batch_size: 4 }
}
layer {
  name: "conv" type: "Convolution" bottom: "image" top: "conv"
  convolution_param { num_output: 2 kernel_size: 3 }
}
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.prototxt").write_text(_LMDB_NET)
    return tmp_path


def test_summary_needs_no_data(folder, capsys):
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


def test_summary_without_a_shape_says_which_flag_helps(folder, capsys):
    (folder / "net.prototxt").write_text(_LMDB_NET.replace("crop_size: 6", ""))
    assert main.main(["summary", "net.prototxt"]) == 65
    assert "--input_shape" in capsys.readouterr().err


def test_time_runs_on_noise_and_names_the_costliest_layers(folder, capsys):
    words = ["--input_shape=image=2,3,8,8", "--iterations=2", "--threads=1", "--json=out.json"]
    assert main.main(["time", "net.prototxt", *words]) == 0
    text = capsys.readouterr().err
    for line in (
        r"\*\*\* Benchmark begins \*\*\*",
        r"Testing for 2 iterations\.",
        r"Iteration: 2 forward-backward time: \S+ ms\.",
        r"      conv\tforward: \S+ ms\.",
        r"      conv\tbackward: \S+ ms\.",
        r"Average Forward pass: \S+ ms\.",
        r"Average Backward pass: \S+ ms\.",
        r"Average Forward-Backward: \S+ ms\.",
        r"Total Time: \S+ ms\.",
        "Costliest layers: ",
    ):
        assert re.search(line, text), f"{line}\n{text}"
    figures = json.loads((folder / "out.json").read_text())
    assert (figures["iterations"], figures["threads"]) == (2, 1)
    assert [row["name"] for row in figures["layers"]] == ["data", "conv", "ip", "loss"]
    parts = sum(row["forward_ms"] + row["backward_ms"] for row in figures["layers"])
    assert 0 < parts <= figures["forward_backward_ms"]


def test_input_shapes_go_where_the_net_reads_them():
    net = parse_net(
        _LMDB_NET + 'layer { name: "in" type: "Input" top: "a" top: "b" input_param { shape { dim: 1 } } }'
    ).param
    records = apply_input_shapes(net, [("image", (9, 3, 8, 8)), ("b", (5, 2))])
    assert records == {"data": (3, 8, 8)}
    assert net.layer[0].data_param.batch_size == 9
    assert [list(shape.dim) for shape in net.layer[-1].input_param.shape] == [[1], [5, 2]]
    with pytest.raises(UsageError, match="no such input") as error:
        apply_input_shapes(net, [("imag", (1,))])
    assert "image, label, a, b" in str(error.value)
    feed_noise(net, records)
    dummy = net.layer[0]
    assert dummy.type == "DummyData"
    assert [list(shape.dim) for shape in dummy.dummy_data_param.shape] == [[9, 3, 6, 6], [9]]


def test_test_prints_batches_loss_and_means(engine):
    assert engine.run("train", "solver.prototxt", "--max_iter=2").returncode == 0
    words = ["test", "-model=net.prototxt", "-weights", "tiny_iter_2.caffemodel", "-iterations=3"]
    results = [engine.run(*words), engine.mpirun(2, *words)]
    for result in results:
        assert result.returncode == 0, result.stderr
        lines = [line.partition("] ")[2] for line in result.stderr.splitlines()]
        assert "Running for 3 iterations." in lines
        batches = [line for line in lines if line.startswith("Batch ")]
        assert [line.split(" =")[0] for line in batches] == [
            f"Batch {batch}, {name}" for batch in range(3) for name in ("accuracy", "loss")
        ]
        assert any(re.fullmatch(r"Loss: \S+", line) for line in lines)
        assert any(re.fullmatch(r"accuracy = \S+", line) for line in lines)
        assert any(re.fullmatch(r"loss = (\S+) \(\* 1 = \1 loss\)", line) for line in lines)


def test_a_state_that_goes_on_from_batch_to_batch_does_so_on_two_ranks(engine):
    shapes = "shape { dim: 4 dim: 2 dim: 3 } shape { dim: 4 dim: 2 }"
    (engine.folder / "lstm.prototxt").write_text(
        'layer { name: "data" type: "DummyData" top: "x" top: "cont"'
        f' dummy_data_param {{ {shapes} data_filler {{ type: "constant" value: 1 }} }} }}\n'
        'layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "h"'
        ' recurrent_param { num_output: 5 weight_filler { type: "uniform" min: -1 } } }\n'
        'layer { name: "mean" type: "Reduction" bottom: "h" top: "mean" reduction_param { operation: MEAN } }\n'
    )
    net = Net.from_file(engine.folder / "lstm.prototxt", phase=TEST, seed=3)
    (engine.folder / "lstm.caffemodel").write_bytes(net.to_proto().SerializeToString())
    words = ["test", "-model=lstm.prototxt", "-weights", "lstm.caffemodel", "-iterations=4"]
    logs = [result.stderr.splitlines() for result in (engine.run(*words), engine.mpirun(2, *words))]
    scores = [[line.partition("] ")[2] for line in log if "] Batch " in line] for log in logs]
    assert len(set(scores[0])) == 4
    assert len({line.partition(" = ")[2] for line in scores[0]}) == 4
    assert scores[1] == scores[0]


def test_test_needs_weights(engine):
    result = engine.run("test", "net.prototxt")
    assert result.returncode == 2
    assert "a file of weights is missing" in result.stderr
