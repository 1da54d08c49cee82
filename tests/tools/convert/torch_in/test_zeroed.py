"""Copies of which parts become zeros, and biases that are computed: a net computes and trains the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from mgcaffe.errors import NetError
from mgcaffe.tools.convert.torch_in.importer import import_program
from mgcaffe.tools.convert.torch_in.program import export_module
from tests.support.torchkit import Function, check_training_step, converted, layers_of, types_of

pytestmark = pytest.mark.slow

F = torch.nn.functional


class WithoutKeyBias(nn.Module):
    """Swin v2's attention: no bias for keys, cosines, a factor that is bounded, and a bias made of known places."""

    def __init__(self) -> None:
        super().__init__()
        self.all, self.scores = nn.Linear(8, 24), nn.Linear(8, 5)
        self.factor = nn.Parameter(torch.zeros(2, 1, 1))
        self.places = nn.Sequential(nn.Linear(2, 16), nn.ReLU(inplace=True), nn.Linear(16, 2, bias=False))
        self.register_buffer("table", torch.linspace(-1, 1, 22).reshape(11, 2))
        places = torch.arange(6)
        self.register_buffer("pairs", (places[:, None] - places + 5).flatten())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        items, steps, size = x.shape
        bias = self.all.bias.clone()
        bias[size : 2 * size].zero_()
        q, k, v = F.linear(x, self.all.weight, bias).reshape(items, steps, 3, 2, 4).permute(2, 0, 3, 1, 4)
        products = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
        products = products * self.factor.clamp(max=4.0).exp()
        pairs = 16 * self.places(self.table)[self.pairs].view(steps, steps, 2).permute(2, 0, 1).sigmoid()
        y = ((products + pairs).softmax(-1) @ v).transpose(1, 2).reshape(items, steps, size)
        return self.scores(y.mean(1))


def test_a_part_of_a_learned_bias_that_is_zero_is_not_trained():
    model = converted(WithoutKeyBias(), (3, 6, 8))
    assert types_of(model)[:4] == ["Parameter", "Scale", "InnerProduct", "Bias"]
    scale = layers_of(model)[1]
    assert (scale.name, scale.param[0].lr_mult) == ("zeroed", 0)
    check_training_step(WithoutKeyBias(), (3, 6, 8))


class Zeroed(nn.Module):
    """A function that writes over a copy of what a layer makes, and scores."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.scores, self.function = nn.Linear(8, 8), nn.Linear(8, 5), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores(self.function(self.first(x)))


def _zero(*parts, fill: bool = False) -> Callable[[torch.Tensor], torch.Tensor]:
    def write(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        for part in parts:
            if fill:
                y[part] = 0
            else:
                y[part].zero_()
        return y * x

    return write


@pytest.mark.parametrize(
    "function",
    [
        _zero((slice(None), slice(2, 5))),
        _zero((slice(None), slice(2, 5)), (slice(None), 7)),
        _zero((slice(None), slice(2, 5)), fill=True),
        _zero((slice(None), slice(1, 8, 2))),
    ],
)
def test_parts_of_a_copy_become_zeros_where_the_value_itself_stays(function):
    model = converted(Zeroed(function), (3, 8))
    assert types_of(model) == ["InnerProduct", "Scale", "Eltwise", "InnerProduct"]
    check_training_step(Zeroed(function), (3, 8))


def test_a_bias_may_be_computed():
    class Computed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.scores = nn.Linear(8, 6), nn.Linear(6, 5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scores(F.linear(x, self.first.weight, self.first.bias.exp())).transpose(1, 2)

    assert types_of(converted(Computed(), (3, 7, 8)))[:4] == ["Parameter", "Exp", "InnerProduct", "Bias"]
    check_training_step(Computed(), (3, 7, 8))


def _read_before(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    z = y * 2
    y[:, :2].zero_()
    return y + z


def _part_read(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    part = y[:, :2]
    part.zero_()
    return torch.cat([y, part], 1)


def _ones(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, :2] = 1
    return y * 2


def _output(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, :2].zero_()
    return y


def _without_a_copy(x: torch.Tensor) -> torch.Tensor:
    x[:, :2].zero_()
    return x * 2


@pytest.mark.parametrize("function", [_read_before, _part_read, _ones, _output, _without_a_copy])
def test_other_ways_to_write_over_parts_are_refused(function):
    program = export_module(Function(function), (3, 8), "the module")
    with pytest.raises(NetError, match="no layer computes this operator") as caught:
        import_program(program, name="net", file="net")
    assert caught.value.location is not None
