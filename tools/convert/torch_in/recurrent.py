"""Operators that go through time steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from mgcaffe.tools.convert.importing.recurrent import (
    Cell,
    Direction,
    State,
    direction,
    states,
    sum_of_biases,
    unit,
    with_gates,
)
from mgcaffe.tools.convert.importing.shapes import joined, permuted
from mgcaffe.tools.convert.importing.values import Constant, Result, Value
from mgcaffe.tools.convert.torch_in.operation import Operation

_GATES = (0, 1, 3, 2)
"""Where PyTorch has Caffe's gates: its own order is input, forget, candidate, output."""


def lstm(op: Operation) -> Sequence[Value]:
    """lstm: LSTM for each layer and direction; Permute and InnerProduct around those that go back."""
    x = op.blob("input")
    if len(x.shape) != 3:
        op.refuse(f"the input has shape {x.shape}, without a batch axis")
    if op["batch_first"]:
        x = permuted(op, x, (1, 0, 2), "steps_first")
    directions = 2 if op["bidirectional"] else 1
    made: list[Direction] = []
    cells = _cells(op, directions)
    for layer in range(op["num_layers"]):
        if layer and op["dropout"]:
            ratio = {"dropout_ratio": op["dropout"]}
            x = op.layer("Dropout", [x], x.shape, part=f"l{layer - 1}_dropout", dropout_param=ratio)
        found = [direction(op, x, next(cells)) for _ in range(directions)]
        made += found
        x = joined(op, [each.y for each in found], 2, f"l{layer}_both")
    if op["batch_first"]:
        x = permuted(op, x, (1, 0, 2), "batch_first")
    hidden, cell = ([each.last[number] for each in made] for number in range(2))
    return [x, joined(op, hidden, 0, "last_h"), joined(op, cell, 0, "last_c")]


def _cells(op: Operation, directions: int) -> Iterator[Cell]:
    """Give the layers' directions in PyTorch's order."""
    layers, parameters = op["num_layers"], op["params"]
    size = 4 if op["has_biases"] else 2
    if len(parameters) != layers * directions * size:
        op.refuse("it has projections (proj_size), which LSTM has not")
    if not all(isinstance(each, Constant) for each in parameters):
        op.refuse("its weights are computed in the net; layers have theirs as parameters")
    first = _first_states(op, layers * directions)
    for number in range(layers * directions):
        own = [with_gates(each, _GATES) for each in parameters[number * size : (number + 1) * size]]
        bias = sum_of_biases(*own[2:]) if own[2:] else None
        reverse = bool(number % directions)
        part = f"l{number // directions}{'_reverse' if reverse else ''}" if layers * directions > 1 else ""
        yield Cell(own[0], own[1], bias, first[number], reverse, part)


def lstm_cell(op: Operation) -> Sequence[Value]:
    """lstm_cell: InnerProduct for the gates of the input and of the state, Eltwise, and LSTMUnit between Reshapes."""
    weight, recurrent, *biases = (op.constant(name) for name in ("w_ih", "w_hh", "b_ih", "b_hh"))
    assert weight is not None and recurrent is not None
    own = [with_gates(each, _GATES) for each in biases if each is not None]
    cell = Cell(with_gates(weight, _GATES), with_gates(recurrent, _GATES), sum_of_biases(*own) if own else None)
    return unit(op, op.blob("input"), cell, *(_state(op, each) for each in op["hx"]))


def _state(op: Operation, value: Result) -> Value | None:
    """Return a state that a cell begins with; None for zeros."""
    if isinstance(value, Constant):
        if value.tensor.any():
            op.refuse("its state is a constant other than zeros, which no layer makes")
        return None
    return op.as_blob(value)


def _first_states(op: Operation, count: int) -> list[State | None]:
    """Return the states that are inputs; None for zeros."""
    hx = op["hx"]
    if all(isinstance(each, Constant) and not each.tensor.any() for each in hx):
        return [None] * count
    for each in hx:
        if not isinstance(each, Value) or op.made.maker_of(each).type != "Input":
            op.refuse(
                "its first state is neither zeros nor an input, and no gradient flows to it, as in Caffe",
                "make it an input of the module, or leave it out",
            )
    hidden, cell = (states(op, op.as_blob(each), f"first_{name}") for each, name in zip(hx, "hc", strict=True))
    return list(zip(hidden, cell, strict=True))


OPERATORS: Mapping[str, Callable[[Operation], Result]] = {"lstm": lstm, "lstm_cell": lstm_cell}
