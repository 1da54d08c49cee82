"""Weights that are computed of a direction and lengths (weight_norm): nets compute and train the same."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

from mgcaffe.errors import NetError
from mgcaffe.tools.convert.torch_in.importer import import_program
from mgcaffe.tools.convert.torch_in.program import export_module
from mgcaffe.tools.convert.torch_training import TorchTraining
from mgcaffe.tools.main import main
from tests.support.torchkit import Function, check_training_step, converted, seeded, types_of

pytestmark = pytest.mark.slow

F = torch.nn.functional

ROWS, IMAGES = (3, 4, 12), (3, 4, 6, 6)


def scored(part: nn.Module, channels: int) -> nn.Module:
    """A module of images or rows, and scores of what it makes."""
    return nn.Sequential(part, nn.Flatten(2), Function(lambda x: x.mean(2)), nn.Linear(channels, 5))


_FACTORS = ["Parameter", "Reduction", "Power", "Parameter", "Reshape", "Eltwise"]


# A module with a weight that is normalized along its first axis, its output channels, the input, the layers of both.
BY_ROWS = {
    "filters of rows": (
        lambda: weight_norm(nn.Conv1d(4, 6, 3, padding=1, groups=2)), 6, ROWS, ["Convolution", "Scale", "Bias"]),
    "filters without a bias": (
        lambda: weight_norm(nn.Conv2d(4, 6, 3, bias=False)), 6, IMAGES, ["Convolution", "Scale"]),
    "filters with more zeros at one end": (
        lambda: weight_norm(nn.Conv1d(4, 6, 4, padding="same")), 6, ROWS, ["Convolution", "Slice", "Scale", "Bias"]),
    "filters that make more": (
        lambda: weight_norm(nn.ConvTranspose1d(4, 6, 4, 2, 1)), 6, ROWS, ["Scale", "Deconvolution"]),
    "filters that make more in groups": (
        lambda: weight_norm(nn.ConvTranspose2d(4, 6, 3, 2, groups=2)), 6, IMAGES, ["Scale", "Deconvolution"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_ROWS)
def test_rows_are_normalized_in_the_net(name):
    make, channels, shape, types = BY_ROWS[name]
    found = types_of(converted(scored(make(), channels), shape))
    assert found[: 6 + len(types)] == [*_FACTORS, *types]
    check_training_step(scored(make(), channels), shape)


def test_products_with_normalized_rows():
    module = nn.Sequential(weight_norm(nn.Linear(12, 7)), nn.Tanh(), nn.Flatten(), weight_norm(nn.Linear(28, 5)))
    assert types_of(converted(module, ROWS)).count("InnerProduct") == 2
    check_training_step(module, ROWS)


def test_products_with_normalized_rows_and_a_bias_that_is_computed():
    class Biased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scores = weight_norm(nn.Linear(8, 5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.linear(x, self.scores.weight, self.scores.bias.exp())

    found = types_of(converted(Biased(), (3, 8)))
    assert found.count("InnerProduct") == 1 and found.count("Scale") == 1
    check_training_step(Biased(), (3, 8))


def test_direction_and_lengths_are_parameters_of_the_net():
    module = scored(weight_norm(nn.Conv1d(4, 6, 3)), 6)
    names = {each.name for each in converted(module, ROWS).parameters.values()}
    assert names == {name for name, _ in module.named_parameters()}


@pytest.mark.parametrize("frozen", ["original0", "original1"])
def test_one_of_direction_and_lengths_may_be_frozen(frozen):
    module = scored(weight_norm(nn.Conv1d(4, 6, 3)), 6)
    getattr(module[0].parametrizations.weight, frozen).requires_grad_(False)
    check_training_step(module, ROWS, fewer=1)


class Twice(nn.Module):
    """A convolution that is used twice, whose weight is computed each time."""

    def __init__(self, axis: int) -> None:
        super().__init__()
        self.conv, self.scores = weight_norm(nn.Conv1d(4, 4, 3, padding=1), dim=axis), nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores(self.conv(torch.tanh(self.conv(x))).mean(2))


@pytest.mark.parametrize(("axis", "fewer"), [(0, 0), (2, 1)])
def test_a_normalized_weight_may_be_used_twice(axis, fewer):
    converted(Twice(axis), ROWS)
    check_training_step(Twice(axis), ROWS, fewer=fewer)


def _along_places() -> nn.Module:
    """wav2vec 2.0's convolution, whose lengths are those of the filters' columns."""
    return scored(weight_norm(nn.Conv1d(4, 6, 4, padding=2, groups=2), dim=2), 6)


@pytest.mark.parametrize("axis", [2, 1, None])
def test_along_other_axes_the_weight_itself_is_trained(axis):
    module = scored(weight_norm(nn.Conv1d(4, 6, 3), dim=axis), 6)
    model = converted(module, ROWS)
    assert types_of(model)[0] == "Convolution"
    assert [each.name for each in model.replaced.values()] == ["0.parametrizations.weight.original1.normalized"]
    check_training_step(module, ROWS, fewer=1)


def test_the_gradient_that_is_compared_is_that_of_the_weight_itself():
    module = seeded(_along_places()).eval()
    model = import_program(export_module(module, ROWS, "the module"), name="net", file="module")
    x, labels = np.random.default_rng(0).standard_normal(ROWS), np.array([0.0, 3.0, 1.0])
    weight = module[0].weight.detach().double().requires_grad_()
    bias = module[0].bias.detach().double()
    y = F.conv1d(torch.from_numpy(x), weight, bias, padding=2, groups=2).mean(2)
    F.cross_entropy(module[3].double()(y), torch.from_numpy(labels).long()).backward()
    given = {}
    program = export_module(seeded(_along_places()), ROWS, "the module")
    TorchTraining(program, model).step({"data": x}, labels, model.outputs[0], given.__setitem__)
    assert sorted(given) == [("0.conv1d", 0), ("0.conv1d", 1), ("3", 0), ("3", 1)]
    assert np.allclose(given["0.conv1d", 0], weight.grad.numpy(), rtol=1e-6, atol=1e-9)


def test_a_note_says_that_the_weight_itself_is_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    source = """
    import torch
    from torch import nn
    def make(axis):
        conv = torch.nn.utils.parametrizations.weight_norm(nn.Conv1d(4, 6, 3), dim=axis)
        return nn.Sequential(conv, nn.Flatten(), nn.Linear(60, 5))
    def rows():
        return make(0)
    def places():
        return make(2)
    """
    (tmp_path / "nets.py").write_text(textwrap.dedent(source))
    note = "trained as one weight, where PyTorch trains its direction and lengths apart (weight_norm): 0.parametriz"
    for name, said in (("rows", False), ("places", True)):
        assert main(["convert", f"nets.py:{name}", f"{name}.prototxt", "--input_shape", "3,4,12"]) == 0
        output = capsys.readouterr()
        assert (note in output.out + output.err) == said


class Given(nn.Module):
    """A weight that is normalized as a function says."""

    def __init__(self, function: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.v, self.g = nn.Parameter(torch.ones(6, 4, 3)), nn.Parameter(torch.ones(1, 1, 3))
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.conv1d(x, self.function(self.v, self.g))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda v, g: torch._weight_norm(v.exp(), g, 2), "its v is computed in the net"),
        (lambda v, g: torch._weight_norm(v, torch.ones(1, 1, 3), 2), "a parameter that is trained times one that is"),
        (lambda v, g: v.tanh(), "its weight is computed in the net"),
    ],
)
def test_other_weights_that_are_computed_are_refused(function, message):
    program = export_module(Given(function), ROWS, "the module")
    with pytest.raises(NetError, match=message) as caught:
        import_program(program, name="net", file="net")
    assert caught.value.location is not None


def test_a_weight_over_its_spectral_norm_is_refused():
    module = scored(spectral_norm(nn.Conv1d(4, 6, 3)), 6)
    with pytest.raises(NetError, match=r"no layer computes this operator \(operator aten\.mv"):
        import_program(export_module(module, ROWS, "the module"), name="net", file="net")
