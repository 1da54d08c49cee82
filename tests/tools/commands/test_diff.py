"""`engine diff` as its users run it."""

import json
from pathlib import Path

import numpy as np
import pytest

from mgcaffe.engine.net import TEST, Net
from mgcaffe.engine.weights.hdf5 import save_hdf5
from mgcaffe.prototxt import blob_array, fill_blob, parse_net
from tests.support.surgerykit import SMALL, full, layer, save_weights


@pytest.fixture
def files(engine):
    """Two nets and two files of weights."""
    engine.write("a.prototxt", SMALL)
    engine.write("b.prototxt", "# the same\n" + SMALL)
    engine.write("c.prototxt", SMALL.replace("kernel_size: 3", "kernel_size: 5").replace('"prob"', '"p"'))
    net = full(SMALL)
    save_weights(net, engine.folder / "a.caffemodel")
    fill_blob(layer(net, "ip").blobs[1], blob_array(layer(net, "ip").blobs[1]) * 2)
    layer(net, "conv").name = "first"
    save_weights(net, engine.folder / "c.caffemodel")
    return engine


def test_equal_files_give_code_0(files):
    result = files.run("diff", "a.prototxt", "b.prototxt", "--json=d.json")
    assert (result.returncode, result.stdout) == (0, "the nets are equal\n"), result.stderr
    assert json.loads(Path("d.json").read_text()) == {
        "equal": True, "kind": "net", "only_in_a": [], "only_in_b": [], "fields": [], "moved": False,
    }  # fmt: skip
    result = files.run("diff", "a.caffemodel", "a.caffemodel")
    assert (result.returncode, result.stdout) == (0, "the weights are equal: 4 blobs\n")
    assert "4x3x3x3" in files.run("diff", "a.caffemodel", "a.caffemodel", "--all").stdout


def test_nets_that_differ_give_code_1_and_a_table(files):
    result = files.run("diff", "a.prototxt", "c.prototxt", "--json=d.json")
    assert result.returncode == 1 and not result.stderr
    assert "a.prototxt  prob (Softmax)" in result.stdout and "c.prototxt  p (Softmax)" in result.stdout
    (row,) = [line.split() for line in result.stdout.splitlines() if line.startswith("conv ")]
    assert row == ["conv", "convolution_param.kernel_size", "3", "5"]
    found = json.loads(Path("d.json").read_text())
    assert not found["equal"] and found["only_in_a"] == ["prob (Softmax)"]
    assert found["fields"] == [{"layer": "conv", "field": "convolution_param.kernel_size", "a": "3", "b": "5"}]


def test_weights_that_differ_give_code_1_and_a_table(files):
    result = files.run("diff", "a.caffemodel", "c.caffemodel", "--json=d.json")
    assert result.returncode == 1 and not result.stderr
    assert "a.caffemodel  conv" in result.stdout and "c.caffemodel  first" in result.stdout
    (row,) = [line.split() for line in result.stdout.splitlines() if line.startswith("ip ")]
    assert row[:4] == ["ip", "1", "5", "5"] and float(row[5]) == pytest.approx(0.5, rel=1e-2)
    assert "1 of 2 blobs that both files have are equal" in result.stdout
    found = json.loads(Path("d.json").read_text())
    assert found["kind"] == "weights" and found["blobs"][1]["largest_relative"] == 0.5


def test_hdf5_and_binary_weights_can_be_compared(files):
    net = Net(parse_net(SMALL).param, phase=TEST, seed=1)
    net.copy_trained_layers("a.caffemodel")
    save_hdf5(net, files.folder / "a.caffemodel.h5")
    assert files.run("diff", "a.caffemodel", "a.caffemodel.h5").returncode == 0
    assert files.run("diff", "c.caffemodel", "a.caffemodel.h5").returncode == 1


def test_json_has_null_for_what_is_not_finite(files):
    net = full(SMALL)
    fill_blob(layer(net, "ip").blobs[1], np.full(5, np.inf, np.float32))
    save_weights(net, files.folder / "inf.caffemodel")
    assert files.run("diff", "a.caffemodel", "inf.caffemodel", "--json=d.json").returncode == 1
    assert json.loads(Path("d.json").read_text())["blobs"][3]["largest_absolute"] is None


def test_a_blob_that_one_file_lacks_is_none_that_both_have(files):
    net = full(SMALL)
    del layer(net, "ip").blobs[1]
    save_weights(net, files.folder / "less.caffemodel")
    result = files.run("diff", "less.caffemodel", "a.caffemodel")
    assert result.returncode == 1 and "3 of 3 blobs that both files have are equal" in result.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["a.prototxt"], 2, "diff takes two files, not 1"),
        (["a.prototxt", "a.caffemodel"], 2, "a.prototxt holds a net alone, a.caffemodel holds weights"),
        (["a.prototxt", "absent.prototxt"], 65, "absent.prototxt"),
        (["a.prototxt", "b.prototxt", "--json=no/d.json"], 73, "cannot write no/d.json"),
    ],
)
def test_mistakes_are_named(files, words, code, said):
    result = files.run("diff", *words)
    assert (result.returncode, said in result.stderr) == (code, True), result.stderr


def test_a_blob_that_does_not_hold_what_it_says_is_named(files):
    net = full(SMALL)
    layer(net, "ip").blobs[1].shape.dim[0] = 9
    save_weights(net, files.folder / "bad.caffemodel")
    result = files.run("diff", "a.caffemodel", "bad.caffemodel")
    assert (result.returncode, "layer 'ip', blob 1: a blob of shape 9 holds 5 values" in result.stderr) == (65, True)
