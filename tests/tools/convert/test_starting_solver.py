"""The train_val net and the solver that `engine convert --train_val` writes."""

import h5py
import numpy as np
import pytest

from mgcaffe.prototxt import read_net, read_solver
from mgcaffe.tools.convert.starting_solver import starting_solver
from mgcaffe.tools.main import main
from tests.support.datakit import datum, images, write_lmdb

pytestmark = pytest.mark.slow

CODE = """
from torch import nn

def make():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Dropout(0.5), nn.Linear(4, 5), nn.Softmax(1),
    )
"""


def test_a_converted_module_can_be_trained_at_once(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(CODE)
    for name in ("train", "val"):
        write_lmdb(tmp_path / name, [datum(image, n % 5) for n, image in enumerate(images(20, (3, 8, 8)))])
    words = ["convert", "nets.py:make", "net.prototxt", "--input_shape", "2,3,8,8", "--train_val", "train,val"]
    assert main([*words, "--batch_size", "4"]) == 0
    net, solver = read_net("net_train_val.prototxt"), read_solver("net_solver.prototxt")
    assert [layer.type for layer in net.layer][:3] == ["Data", "Data", "Convolution"]
    types = [layer.type for layer in net.layer]
    assert {"SoftmaxWithLoss", "Accuracy"} <= set(types) and "Softmax" not in types
    assert [layer.data_param.source for layer in net.layer[:2]] == ["train", "val"]
    assert (solver.net, list(solver.weights)) == ("net_train_val.prototxt", ["net.caffemodel"])
    text = (tmp_path / "net_solver.prototxt").read_text()
    short = text.replace("max_iter: 40000", "max_iter: 2").replace("test_iter: 100", "test_iter: 2")
    (tmp_path / "short.prototxt").write_text(short)
    assert main(["train", "short.prototxt"]) == 0
    said = capfd.readouterr()
    assert "net.caffemodel" in said.err + said.out
    assert list(tmp_path.glob("net_iter_2.caffemodel*"))


def test_a_module_that_reads_words_can_be_trained_on_rows_of_hdf5(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(
        "import torch\nfrom torch import nn\n\nclass Text(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.words, self.rnn = nn.Embedding(11, 6, padding_idx=0), nn.LSTM(6, 8)\n"
        "        self.scores = nn.Linear(8, 5)\n\n    def forward(self, ids):\n"
        "        return self.scores(self.rnn(self.words(ids).transpose(0, 1))[1][0][-1])\n"
    )
    generator = np.random.default_rng(5)
    with h5py.File("rows.h5", "w") as file:
        file["data"] = generator.integers(0, 11, (20, 7)).astype(np.float32)
        file["label"] = generator.integers(0, 5, 20).astype(np.float32)
    (tmp_path / "rows.txt").write_text("rows.h5\n")
    words = ["convert", "nets.py:Text", "net.prototxt", "--input_shape", "1,7", "--train_val", "rows.txt"]
    assert main([*words, "--data_layer", "HDF5Data", "--batch_size", "4"]) == 0
    text = (tmp_path / "net_solver.prototxt").read_text()
    (tmp_path / "short.prototxt").write_text(text.replace("max_iter: 40000", "max_iter: 3").replace("100", "2"))
    assert main(["train", "short.prototxt"]) == 0
    assert main(["convert", "net.prototxt", "net_iter_3.caffemodel", "trained.onnx"]) == 0


def test_a_net_that_no_loss_fits_keeps_its_deploy_form(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    words = ["convert", "torch.nn:ReLU", "net.prototxt", "--input_shape", "2,3", "--train_val", "train"]
    assert main(words) == 65
    said = capfd.readouterr().err
    assert "input 'data' has 2 axes" in said and "--data_layer HDF5Data gives blobs of any shape" in said
    assert (tmp_path / "net.prototxt").is_file() and not (tmp_path / "net_train_val.prototxt").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["out.onnx", "--train_val", "a"], "--train_val goes with nets of Caffe's, not with ONNX"),
        (["out.npz", "--train_val", "a"], "--train_val goes with nets of Caffe's, not with weights alone"),
        (["out.prototxt", "--loss", "hinge"], "--loss goes with --train_val"),
        (["out.prototxt", "--batch_size=4"], "--batch_size goes with --train_val"),
        (["out.prototxt", "--data_layer=HDF5Data"], "--data_layer goes with --train_val"),
        (["out.prototxt", "--train_val", "a,b,c"], "--train_val takes one or two sources, not 3"),
    ],
)
def test_mistakes_on_the_command_line(words, message, capfd):
    assert main(["convert", "torch.nn:ReLU", *words]) == 2
    assert message in capfd.readouterr().err


def test_the_solver_starts_from_the_weights():
    solver = starting_solver("net_train_val.prototxt", "net.caffemodel", "net")
    assert list(solver.weights) == ["net.caffemodel"] and solver.snapshot_prefix == "net"
    steps = [*solver.stepvalue, solver.max_iter]
    assert steps == sorted(steps) and solver.base_lr > 0
