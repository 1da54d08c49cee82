"""`engine test`: what it prints, on one rank and on two."""

from __future__ import annotations

import re

import pytest
import torch

from mgcaffe.engine.net import TEST, Net
from mgcaffe.tools.listeners.glog import number
from tests.support.criteokit import rows, write
from tests.support.netkit import make_net

# A metric of the whole test beside those of a batch; its score needs no weights.
CLICKS = """
layer {
  name: "clicks" type: "CriteoData" top: "clicked" top: "dense" top: "ids" include { phase: TEST }
  criteo_data_param { source: "rows.tsv" batch_size: 7 table_size: 9 }
}
layer { name: "quiet" type: "Silence" bottom: "ids" include { phase: TEST } }
layer {
  name: "score" type: "Reduction" bottom: "dense" top: "score" include { phase: TEST } reduction_param { axis: 1 }
}
layer { name: "auc" type: "AUC" bottom: "score" bottom: "clicked" top: "auc" include { phase: TEST } }
"""


@pytest.mark.mpi
@pytest.mark.slow
def test_test_prints_batches_loss_and_means(engine, mpi_ranks):
    engine.write("net.prototxt", engine.net + CLICKS)
    write(engine.folder / "rows.tsv", rows(0, 21))
    assert engine.run("train", "solver.prototxt", "--max_iter=2").returncode == 0
    words = ["test", "-model=net.prototxt", "-weights", "tiny_iter_2.caffemodel", "-iterations=3"]
    results = [engine.run(*words), mpi_ranks(2).run(engine.folder, *words)]
    for result in results:
        assert result.returncode == 0, result.stderr
        lines = [line.partition("] ")[2] for line in result.stderr.splitlines()]
        assert "Running for 3 iterations." in lines
        batches = [line for line in lines if line.startswith("Batch ")]
        assert [line.split(" =")[0] for line in batches] == [
            f"Batch {batch}, {name}" for batch in range(3) for name in ("accuracy", "auc", "loss")
        ]
        assert any(re.fullmatch(r"Loss: \S+", line) for line in lines)
        assert any(re.fullmatch(r"accuracy = \S+", line) for line in lines)
        assert any(re.fullmatch(r"loss = (\S+) \(\* 1 = \1 loss\)", line) for line in lines)
        assert f"auc = {number(auc_of_all(engine.folder))}" in lines


def auc_of_all(folder) -> float:
    """The AUC of the rows' sums by a count of all pairs."""
    text = CLICKS.replace("batch_size: 7", "batch_size: 21").replace("rows.tsv", f"{folder}/rows.tsv")
    net = make_net(text, phase=TEST, dtype=torch.float32)
    net.forward()
    score, clicked = (net.blobs[name].data for name in ("score", "clicked"))
    net.close()
    return float((score[clicked > 0][:, None] > score[clicked == 0]).double().mean())


@pytest.mark.mpi
@pytest.mark.slow
def test_a_state_that_goes_on_from_batch_to_batch_does_so_on_two_ranks(engine, mpi_ranks):
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
    logs = [result.stderr.splitlines() for result in (engine.run(*words), mpi_ranks(2).run(engine.folder, *words))]
    scores = [[line.partition("] ")[2] for line in log if "] Batch " in line] for log in logs]
    assert len(set(scores[0])) == 4
    assert len({line.partition(" = ")[2] for line in scores[0]}) == 4
    assert scores[1] == scores[0]


def test_test_computes_in_the_precision_asked_for(engine):
    conv = (
        'layer { name: "data" type: "DummyData" top: "x" dummy_data_param { shape { dim: 40 dim: 30 } '
        'data_filler { type: "gaussian" } } }\n'
        + "".join(
            f'layer {{ name: "{top}" type: "InnerProduct" bottom: "{bottom}" top: "{top}" '
            'inner_product_param { num_output: 9 weight_filler { type: "gaussian" } } }\n'
            for bottom, top in (("x", "y"), ("y", "z"))
        )
        + 'layer { name: "sum" type: "Reduction" bottom: "z" top: "sum" }\n'
    )
    (engine.folder / "products.prototxt").write_text(conv)
    net = Net.from_file(engine.folder / "products.prototxt", phase=TEST, seed=3)
    (engine.folder / "products.caffemodel").write_bytes(net.to_proto().SerializeToString())
    words = ["test", "-model=products.prototxt", "-weights", "products.caffemodel", "-iterations=1"]
    logs = {name: engine.run(*words, f"--precision={name}") for name in ("float32", "bf16", "fp16", "tf32")}
    assert [logs[name].returncode for name in logs] == [0, 0, 0, 2]
    assert "Products are computed in bf16." in logs["bf16"].stderr
    assert "--precision tf32: only GPUs compute products in TF32" in logs["tf32"].stderr
    assert "products in fp16 are for GPUs" in logs["fp16"].stderr


def test_layers_without_weights_are_warned_about(engine):
    assert engine.run("train", "solver.prototxt", "--max_iter=2").returncode == 0
    words = ["--weights", "tiny_iter_2.caffemodel", "--iterations=1"]
    assert "no weights in" not in engine.run("test", "net.prototxt", *words).stderr
    engine.write("renamed.prototxt", engine.net.replace('name: "ip"', 'name: "ip_new"'))
    result = engine.run("test", "renamed.prototxt", *words)
    assert "no weights in tiny_iter_2.caffemodel for 1 layer(s): ip_new; they compute with" in result.stderr
    assert result.returncode == 0


def test_test_needs_weights(engine):
    result = engine.run("test", "net.prototxt")
    assert result.returncode == 2
    assert "a file of weights is missing" in result.stderr
