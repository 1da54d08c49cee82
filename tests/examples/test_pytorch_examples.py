"""The examples of PyTorch's modules: three lines from DDP, networks as known, data of known entropy, a run."""

import difflib
import re
import runpy
import sys

import pytest
import torch

from datasets.generated_images import CLASSES, striped_images
from datasets.generated_text import LETTERS, GeneratedText
from networks.deep_mlp import DeepMlp
from networks.gpt import GPT, TEN_MILLION
from networks.lstm import LstmLanguageModel
from networks.mobilenet import MobileNetV2
from networks.resnet import ResNet18, resnet18
from tests.support.jobs import RunningJob
from tests.support.paths import ROOT

FOLDER = ROOT / "examples/pytorch"
TOKENS = torch.zeros(2, 5, dtype=torch.int64, device="meta")
IMAGES = torch.zeros(2, 3, 64, 64, device="meta")


@pytest.mark.parametrize("name", ["digits", "gpt", "resnet"])
def test_the_scripts_with_ddp_and_with_ours_are_three_lines_apart(name):
    scripts = [(FOLDER / f"{name}_{kind}.py").read_text().splitlines() for kind in ("ddp", "mgwfbp")]
    changes = [line for line in difflib.ndiff(*scripts) if line[0] in "+-"]
    assert [sum(line[0] == sign for line in changes) for sign in "+-"] == [3, 3], changes
    assert all(re.search("DistributedDataParallel|MergedGradientParallel|Progress", line) for line in changes)


@pytest.mark.parametrize(
    ("make", "millions", "tensors", "inputs", "shape"),
    [
        (ResNet18, 11.689512, 62, IMAGES, (2, 1000)),
        (MobileNetV2, 3.504872, 158, IMAGES, (2, 1000)),
        (lambda: GPT(**TEN_MILLION), 10.770816, 76, TOKENS, (2, 5, 65)),
        (LstmLanguageModel, 14.462496, 10, TOKENS, (2, 5, 20000)),
        (DeepMlp, 60 * 64 * 1024 / 4e6, 60, torch.zeros(2, 128, device="meta"), (2, 128)),
    ],
)
def test_networks_have_the_size_that_they_are_known_for(make, millions, tensors, inputs, shape):
    with torch.device("meta"):
        network = make()
        counts = [each.numel() for each in network.parameters()]
        assert (sum(counts), len(counts)) == (round(1e6 * millions), tensors)
        assert network(inputs).shape == shape


def test_names_are_those_of_torchvision():
    with torch.device("meta"):
        names = set(ResNet18().state_dict()) | set(MobileNetV2().state_dict())
    assert {"layer2.0.downsample.1.running_var", "layer4.1.bn2.weight", "fc.bias"} < names
    assert {"features.1.conv.0.0.weight", "features.17.conv.3.running_mean", "classifier.1.weight"} < names


class RaisesRuntimeError:
    """Stands for a torchvision that was made for another PyTorch."""

    def __getattr__(self, name):
        raise RuntimeError("operator torchvision::nms does not exist")


@pytest.mark.parametrize("make", [lambda: None, RaisesRuntimeError])
def test_a_torchvision_that_cannot_be_imported_is_done_without(monkeypatch, make):
    module = make()
    monkeypatch.setitem(sys.modules, "torchvision.models", module)
    monkeypatch.setitem(sys.modules, "torchvision", module)
    with torch.device("meta"):
        assert isinstance(resnet18(10), ResNet18)


def test_the_entropy_of_generated_text_is_that_of_its_letters():
    text = GeneratedText()
    assert text.after_two < text.lowest_loss(10) < text.after_one < text.even
    letters = text.batch(2000, 60, torch.Generator().manual_seed(0))
    pairs = LETTERS * letters[:, :-2] + letters[:, 1:-1]
    counts = torch.zeros(LETTERS**2, LETTERS).index_put((pairs, letters[:, 2:]), torch.ones(()), accumulate=True)
    found = -(counts * (counts / counts.sum(1, keepdim=True)).clamp_min(1e-9).log()).sum() / counts.sum()
    assert found.item() == pytest.approx(text.after_two, abs=0.02)


def test_generated_images_are_of_all_classes():
    images, labels = striped_images(100, torch.Generator().manual_seed(0), size=16)
    assert images.shape == (100, 3, 16, 16) and set(labels.tolist()) == set(range(CLASSES))


@pytest.fixture
def digits(tmp_path):
    """A script that trains for less long."""
    shorter = tmp_path / "digits.py"
    shorter.write_text((FOLDER / "digits_mgwfbp.py").read_text().replace("EPOCHS = 20", "EPOCHS = 5"))
    return shorter


@pytest.mark.slow
def test_two_ranks_under_torchrun_learn_to_read_digits(digits):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", digits]
    with RunningJob(command, environment={"PYTHONPATH": str(FOLDER)}, cwd=ROOT) as job:
        result = job.end(120)
    assert result.code == 0 and not result.left_behind, result.describe()
    lines = result.stdout.splitlines()
    assert lines[-2].startswith(("plan 'auto: ", "no plan was found yet")), result.describe()  # as time allows
    accuracy = re.fullmatch(r"accuracy on 360 other images: ([\d.]+) %", lines[-1])
    assert accuracy and float(accuracy[1]) > 90, result.describe()


def test_one_process_alone_learns_to_read_digits(digits, capsys):
    runpy.run_path(str(digits))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == "one rank: no gradients are sent"
    accuracy = re.fullmatch(r"accuracy on 360 other images: ([\d.]+) %", lines[-1])
    assert accuracy and float(accuracy[1]) > 90
    assert not torch.distributed.is_initialized()
