"""LSTM of PyTorch: any layers, directions and orders of axes compute the same, and train the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from mgcaffe.errors import NetError
from mgcaffe.tools.convert.importing import unrolled
from mgcaffe.tools.convert.torch_in.importer import import_program
from mgcaffe.tools.convert.torch_in.program import export_module
from tests.support.torchkit import SHAPE, check_training_step, converted, layers_of, types_of

pytestmark = pytest.mark.slow

STEPS = (7, 3, 5)


class Scores(nn.Module):
    """Scores by what an LSTM makes of a sequence."""

    def __init__(self, take: str = "last", inputs: int = 5, **fields: object) -> None:
        super().__init__()
        self.rnn = nn.LSTM(inputs, 6, **fields)
        self.scores = nn.Linear(6 * (1 + self.rnn.bidirectional), 5)
        self.take = take

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, (h, _) = self.rnn(x)
        if self.take == "last":
            y = y[:, -1] if self.rnn.batch_first else y[-1]
        elif self.take == "h":
            y = torch.cat([h[-2], h[-1]], 1) if self.rnn.bidirectional else h[-1]
        elif self.take == "mean":
            y = y.mean(1 if self.rnn.batch_first else 0)
        elif self.take == "largest":
            y = y.amax(0)
        return self.scores(y).transpose(1, -1)


class Text(nn.Module):
    """Words as vectors, two directions, and scores of each step: reads a line of text from an image's columns."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 6, (6, 3), padding=(0, 1))
        self.rnn = nn.LSTM(6, 4, bidirectional=True)
        self.again = nn.LSTM(8, 4, bidirectional=True)
        self.scores = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.conv(x)).squeeze(2).permute(2, 0, 1)
        y = self.again(self.rnn(y)[0])[0]
        return self.scores(y).permute(1, 2, 0)


class Twice(nn.Module):
    """One LSTM for two inputs, which begin with different states."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(5, 6)
        self.scores = nn.Linear(12, 5)

    def forward(self, one: torch.Tensor, two: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return self.scores(torch.cat([self.rnn(one)[0][-1], self.rnn(two, (h, c))[0][-1]], 1))


class Steps(nn.Module):
    """A cell that is called step by step, which gets its last scores as well."""

    def __init__(self, *, bias: bool = True) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(5 + 4, 6, bias=bias)
        self.scores = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state, last = None, x[:, 0, :4]
        for step in range(x.shape[1]):
            state = self.cell(torch.cat([x[:, step], last], 1), state)
            last = torch.tanh(state[1])[:, :4]
        return self.scores(state[0])


class Other(nn.Module):
    """nn.GRU or nn.RNN."""

    def __init__(self, kind: str = "GRU", **fields: object) -> None:
        super().__init__()
        self.rnn = getattr(nn, kind)(5, 6, **fields)
        self.scores = nn.Linear(6 * (1 + self.rnn.bidirectional), 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, h = self.rnn(x)
        h = torch.cat([h[-2], h[-1]], 1) if self.rnn.bidirectional else h[-1]
        return self.scores(y.mean(1 if self.rnn.batch_first else 0) + h)


class OtherSteps(nn.Module):
    """nn.GRUCell or nn.RNNCell, and an nn.GRU that goes on from its state."""

    def __init__(self, kind: str = "GRUCell", **fields: object) -> None:
        super().__init__()
        self.cell, self.rnn = getattr(nn, kind)(5, 6, **fields), nn.GRU(5, 6)
        self.scores = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for part in x.unbind(1):
            state = self.cell(part, state)
        return self.scores(self.rnn(x.transpose(0, 1), state.unsqueeze(0))[1][0])


class LearnedStart(nn.Module):
    """Cells that begin with a state that is learned."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.cell, self.scores = getattr(nn, kind)(5, 6), nn.Linear(6, 5)
        self.first = nn.Parameter(torch.zeros(3, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = (self.first, torch.tanh(self.first)) if isinstance(self.cell, nn.LSTMCell) else self.first
        state = self.cell(x, state)
        return self.scores(state[0] if isinstance(self.cell, nn.LSTMCell) else state)


class AfterOne(nn.Module):
    """Two sequences of one size, the first of them computed by a layer that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.one, self.two = nn.Linear(5, 5), nn.LSTM(5, 6), nn.LSTM(5, 6)
        self.scores = nn.Linear(6, 5)

    def forward(self, one: torch.Tensor, two: torch.Tensor) -> torch.Tensor:
        return self.scores(self.one(self.first(one))[0][-1] + self.two(two)[0][-1])


class CellAfterOne(nn.Module):
    """A cell whose input is computed by a layer that learns."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.cell, self.scores = nn.Linear(5, 5), nn.LSTMCell(5, 6), nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = None
        for part in self.first(x).unbind(1):
            state = self.cell(part, state)
        return self.scores(state[0])


_GIVEN = ["Reduction", "Power", "Slice", "Power", "Reshape", "Tile"]
_BACK = ["Permute", "InnerProduct", "Permute"]
_BOTH = [*_GIVEN, "LSTM", *_BACK, "LSTM", *_BACK, "Concat"]
MODULES = {
    "the last step": (Scores(), STEPS, [*_GIVEN, "LSTM", "Slice", "Reshape", "InnerProduct", "Silence"]),
    "batch first": (
        Scores(batch_first=True), STEPS,
        ["Permute", *_GIVEN, "LSTM", "Permute", "Slice", "Flatten", "InnerProduct", "Silence"],
    ),
    "every step": (Scores("all"), STEPS, [*_GIVEN, "LSTM", "InnerProduct", "Permute", "Silence"]),
    "no biases": (Scores("h", bias=False), STEPS, [*_GIVEN, "LSTM", "Slice", "Reshape", "InnerProduct", "Silence"]),
    "two layers": (
        Scores("h", num_layers=2, dropout=0.5), STEPS,
        [*_GIVEN, "LSTM", "Slice", "Dropout", "LSTM", "Slice", "Concat", "Slice", "Reshape", "InnerProduct",
         "Silence"],
    ),
    "both directions": (Scores("all", bidirectional=True), STEPS, [*_BOTH, "InnerProduct", "Permute", "Silence"]),
    "two layers of both directions": (Scores("h", num_layers=2, bidirectional=True, batch_first=True), STEPS, None),
    "the mean of all steps": (Scores("mean"), STEPS, None),
    "the mean, batch first": (Scores("mean", batch_first=True), STEPS, None),
    "the largest of all steps": (Scores("largest"), STEPS, None),
    "one sequence without a batch": (Scores("all"), (7, 5), None),
    "one step": (Scores("h"), (1, 3, 5), None),
    "two steps": (Scores("h"), (2, 3, 5), None),
    "one step of both directions": (Scores("h", bidirectional=True), (1, 3, 5), None),
    "one sequence": (Scores("h", num_layers=2), (7, 1, 5), None),
    "text in an image": (Text(), (3, 4, 6, 8), None),
    "a cell": (Steps(), (3, 4, 5), None),
    "a cell without biases": (Steps(bias=False), (3, 2, 5), None),
    "GRU": (Other(), STEPS, None),
    "GRU, two layers, batch first": (Other(num_layers=2, batch_first=True, dropout=0.3), STEPS, None),
    "GRU, both directions, no biases": (Other(bidirectional=True, bias=False), STEPS, None),
    "GRU, one step and direction": (Other(), (1, 3, 5), None),
    "GRU, one step": (Other(bidirectional=True), (1, 3, 5), None),
    "RNN": (Other("RNN"), STEPS, None),
    "RNN of ReLU": (Other("RNN", nonlinearity="relu", bidirectional=True), STEPS, None),
    "LSTM cell, a learned state": (LearnedStart("LSTMCell"), (3, 5), None),
    "GRU cell, a learned state": (LearnedStart("GRUCell"), (3, 5), None),
    "RNN cell, a learned state": (LearnedStart("RNNCell"), (3, 5), None),
    "GRU cell": (OtherSteps(), (3, 4, 5), None),
    "RNN cell": (OtherSteps("RNNCell"), (3, 4, 5), None),
    "RNN cell of ReLU, no biases": (OtherSteps("RNNCell", nonlinearity="relu", bias=False), (3, 4, 5), None),
    "a sequence after one that learns": (AfterOne(), {"one": STEPS, "two": STEPS}, None),
    "a cell after a layer that learns": (CellAfterOne(), (3, 2, 5), None),
    "used twice": (Twice(), {"one": STEPS, "two": (4, 3, 5), "h": (1, 3, 6), "c": (1, 3, 6)}, None),
}  # fmt: skip


def sums_of_biases(module: nn.Module) -> int:
    """How many parameters less there are, since two biases become one, but for a GRU's."""
    names = [
        f"{place}.{name}"
        for place, part in module.named_modules()
        if isinstance(part, (nn.LSTM, nn.LSTMCell, nn.RNN, nn.RNNCell))
        for name, _ in part.named_parameters(recurse=False)
    ]
    return sum("bias_hh" in name for name in names)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_with_an_lstm_computes_the_same_and_trains_the_same(name):
    module, shape, types = MODULES[name]
    model = converted(module, shape)
    assert types is None or types_of(model) == types
    check_training_step(module, shape, fewer=sums_of_biases(module))


class Shared(nn.Module):
    """A parameter of a recurrent layer that another one reads as well."""

    def __init__(self, name: str, other: str = "linear") -> None:
        super().__init__()
        self.rnn, self.again, self.name, self.other = nn.LSTM(6, 6), nn.LSTM(6, 6), name, other
        if other == "bias":
            self.again.bias_ih_l0 = self.rnn.bias_ih_l0
        elif other == "both":
            self.rnn.bias_hh_l0 = self.rnn.bias_ih_l0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.rnn(x)[0]
        if self.other == "linear":
            return nn.functional.linear(y, getattr(self.rnn, self.name))
        return self.again(y)[0]


@pytest.mark.parametrize(("name", "other"), [("weight_ih_l0", "linear"), ("", "bias"), ("", "both")])
def test_a_parameter_that_an_lstm_holds_in_another_form_cannot_be_shared(name, other):
    program = export_module(Shared(name, other), (7, 3, 6), "the module")
    with pytest.raises(NetError, match=r"both read '\w+\.\w+', which a recurrent layer holds in another order"):
        import_program(program, name="net", file="module")


def test_the_sum_of_two_biases_moves_as_both_do():
    layer = next(each for each in layers_of(converted(Scores(), STEPS)) if each.type == "LSTM")
    assert [(each.lr_mult, each.decay_mult) for each in layer.param] == [(1, 1), (2, 0.5), (1, 1)]


@pytest.mark.parametrize("frozen", ["bias_ih_l0", "bias_hh_l0"])
def test_a_sum_with_one_frozen_bias_moves_as_the_other(frozen):
    module = Scores()
    getattr(module.rnn, frozen).requires_grad_(False)
    layer = next(each for each in layers_of(converted(module, STEPS)) if each.type == "LSTM")
    assert all(each.lr_mult in (None, 1) for each in layer.param)
    check_training_step(module, STEPS, fewer=1)


def test_frozen_biases_stay():
    module = Scores(bias=False)
    layer = next(each for each in layers_of(converted(module, STEPS)) if each.type == "LSTM")
    assert [(each.lr_mult, each.decay_mult) for each in layer.param] == [(1, 1), (0, 0), (1, 1)]


class States(nn.Module):
    """Goes on from states that it is given, and gives those it ends with."""

    def __init__(self, **fields: object) -> None:
        super().__init__()
        self.rnn = nn.LSTM(5, 6, **fields)

    def forward(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y, (h, c) = self.rnn(x, (h, c))
        return y, h, c


@pytest.mark.parametrize("fields", [{}, {"num_layers": 2}, {"bidirectional": True, "batch_first": True}])
def test_states_may_be_inputs_and_outputs(fields):
    count = fields.get("num_layers", 1) * (2 if fields.get("bidirectional") else 1)
    model = converted(
        States(**fields),
        {"x": STEPS, "h": (count, STEPS[1], 6), "c": (count, STEPS[1], 6)}
        if not fields.get("batch_first")
        else {"x": STEPS, "h": (count, 7, 6), "c": (count, 7, 6)},
    )
    assert len(model.outputs) == 3


def test_the_values_of_one_step_and_its_state_are_two_outputs():
    model = converted(States(), {"x": (1, 3, 5), "h": (1, 3, 6), "c": (1, 3, 6)})
    assert len(set(model.outputs)) == 3


class Reversed(nn.Module):
    def __init__(self, *axes: int) -> None:
        super().__init__()
        self.conv, self.axes = nn.Conv2d(4, 5, 3), axes

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x).flip(self.axes)


def test_axes_can_be_reversed():
    converted(Reversed(1, -1, 2))
    check_training_step(Reversed(1, -1, 2))
    with pytest.raises(NetError, match="it reverses the order of the batch"):
        converted(Reversed(0), SHAPE)


class Learned(nn.Module):
    """Begins with a state that is learned, of zeros by now or not."""

    def __init__(self, value: float = 1.0) -> None:
        super().__init__()
        self.rnn, self.h = nn.LSTM(5, 6), nn.Parameter(torch.full((1, 3, 6), value))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rnn(x, (self.h, x.new_zeros(1, x.shape[1], 6)))[0]


class Alone(nn.Module):
    def __init__(self, **fields: object) -> None:
        super().__init__()
        self.rnn = nn.LSTM(5, 6, **fields)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.rnn(x)[0]


REFUSED = {
    "a learned state of zeros": (Learned(0.0), STEPS, "its first state is learned"),
    "a learned state": (Learned(), STEPS, "its first state is learned, computed or no zeros"),
    "so many steps": (Other(), STEPS, "it goes through 7 steps, .* at most 6 can"),
    "projections": (Alone(proj_size=3), STEPS, "projections"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_lstm_has_not_is_refused(name, monkeypatch):
    module, shape, said = REFUSED[name]
    monkeypatch.setattr(unrolled, "MOST_STEPS", 6)
    with pytest.raises(NetError, match=said):
        import_program(export_module(module, shape, "the module"), name="net", file="module")
