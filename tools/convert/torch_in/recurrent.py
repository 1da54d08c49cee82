"""Operators that go through time steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from mgcaffe.tools.convert.importing import unrolled
from mgcaffe.tools.convert.importing.recurrent import (
    Cell,
    State,
    direction,
    states,
    sum_of_biases,
    unit,
    with_gates,
    zero_state,
)
from mgcaffe.tools.convert.importing.shapes import joined, permuted, reshaped
from mgcaffe.tools.convert.importing.unrolled import gated_step, plain_step
from mgcaffe.tools.convert.importing.values import Constant, Result, Value
from mgcaffe.tools.convert.torch_in.operation import Operation

_GATES = (0, 1, 3, 2)
"""Where PyTorch has Caffe's gates: its own order is input, forget, candidate, output."""


def lstm(op: Operation) -> Sequence[Value]:
    """lstm: LSTM for each layer and direction; Permute and InnerProduct around those that go back."""
    size, groups = _parameters(op)
    first = _first_states(op, len(groups))

    def run(number: int, x: Value) -> tuple[Value, State]:
        own = [with_gates(each, _GATES) for each in groups[number]]
        bias = sum_of_biases(*own[2:]) if size > 2 else None
        found = direction(op, x, Cell(own[0], own[1], bias, first[number], *_place(op, number)))
        return found.y, found.last

    x, last = _through_layers(op, run)
    return [x, *(joined(op, each, 0, f"last_{name}") for name, each in zip("hc", zip(*last, strict=True), strict=True))]


def gru(op: Operation) -> Sequence[Value]:
    """gru: InnerProduct over all steps, and layers for each step."""
    return _unrolled(op, lambda own: unrolled.Cell(own[0], _or_none(own, 2), gated_step(own[1], _or_none(own, 3))))


def rnn_tanh(op: Operation) -> Sequence[Value]:
    """rnn_tanh: InnerProduct over all steps, and InnerProduct, Eltwise and TanH for each step."""
    return _unrolled(op, lambda own: _plain(own, "TanH"))


def rnn_relu(op: Operation) -> Sequence[Value]:
    """rnn_relu: as rnn_tanh, with ReLU."""
    return _unrolled(op, lambda own: _plain(own, "ReLU"))


def _plain(own: Sequence[Constant], kind: str) -> unrolled.Cell:
    bias = sum_of_biases(*own[2:]) if own[2:] else None
    return unrolled.Cell(own[0], bias, plain_step(own[1], None, kind))


def _or_none(own: Sequence[Constant], number: int) -> Constant | None:
    return own[number] if number < len(own) else None


def _unrolled(op: Operation, make: Callable[[Sequence[Constant]], unrolled.Cell]) -> Sequence[Value]:
    """Add the layers of all steps, layers and directions; `make` makes a cell of its parameters."""
    _, groups = _parameters(op)
    state: Result = op["hx"]
    first = None if _is_zero(state) else states(op, op.as_blob(state), "first")

    def run(number: int, x: Value) -> tuple[Value, Value]:
        reverse, part = _place(op, number)
        cell = replace(make(groups[number]), reverse=reverse, part=part)
        before = first[number] if first else zero_state(op, x, groups[number][1].tensor.shape[1])
        return unrolled.unrolled(op, x, cell, before)

    x, last = _through_layers(op, run)
    return [x, joined(op, last, 0, "last_h")]


_Last = TypeVar("_Last")


def _through_layers(op: Operation, run: Callable[[int, Value], tuple[Value, _Last]]) -> tuple[Value, list[_Last]]:
    """Go through the layers and directions of an operator that PyTorch has such arguments for.

    Args:
        op: the operator.
        run: given a direction's number and its input (T, N, D), returns its output (T, N, H) and its last state.

    Returns:
        The output of the last layer, with axes as the operator has them, and all last states.
    """
    x = op.blob("input")
    if len(x.shape) != 3:
        op.refuse(f"the input has shape {x.shape}, without a batch axis")
    if op["batch_first"]:
        x = permuted(op, x, (1, 0, 2), "steps_first")
    directions, last = 2 if op["bidirectional"] else 1, []
    for layer in range(op["num_layers"]):
        if layer and op["dropout"]:
            ratio = {"dropout_ratio": op["dropout"]}
            x = op.layer("Dropout", [x], x.shape, part=f"l{layer - 1}_dropout", dropout_param=ratio)
        found = [run(layer * directions + number, x) for number in range(directions)]
        last += [each for _, each in found]
        x = joined(op, [y for y, _ in found], 2, f"l{layer}_both")
    return (permuted(op, x, (1, 0, 2), "batch_first") if op["batch_first"] else x), last


def _parameters(op: Operation) -> tuple[int, list[list[Constant]]]:
    """Return how many parameters each direction has, and these in PyTorch's order."""
    parameters, size = op["params"], 4 if op["has_biases"] else 2
    count = op["num_layers"] * (2 if op["bidirectional"] else 1)
    if len(parameters) != count * size:
        op.refuse("it has projections (proj_size), which LSTM has not")
    if not all(isinstance(each, Constant) for each in parameters):
        op.refuse("its weights are computed in the net; layers have theirs as parameters")
    return size, [parameters[number * size : (number + 1) * size] for number in range(count)]


def _place(op: Operation, number: int) -> tuple[bool, str]:
    """Return whether a direction goes back, and what its layers are called."""
    directions = 2 if op["bidirectional"] else 1
    reverse = bool(number % directions)
    several = op["num_layers"] * directions > 1
    return reverse, f"l{number // directions}{'_reverse' if reverse else ''}" if several else ""


def lstm_cell(op: Operation) -> Sequence[Value]:
    """lstm_cell: InnerProduct for the gates of the input and of the state, Eltwise, and LSTMUnit between Reshapes."""
    weight, recurrent, *biases = (op.constant(name) for name in ("w_ih", "w_hh", "b_ih", "b_hh"))
    assert weight is not None and recurrent is not None
    own = [with_gates(each, _GATES) for each in biases if each is not None]
    cell = Cell(with_gates(weight, _GATES), with_gates(recurrent, _GATES), sum_of_biases(*own) if own else None)
    return unit(op, op.blob("input"), cell, *(_state(op, each) for each in op["hx"]))


def _state(op: Operation, value: Result) -> Value | None:
    """Return a state that a cell begins with; None for zeros."""
    return None if _is_zero(value) else op.as_blob(value)


def _is_zero(value: Result) -> bool:
    return isinstance(value, Constant) and not value.trained and not value.tensor.any()


def _first_states(op: Operation, count: int) -> list[State | None]:
    """Return the states that are inputs; None for zeros."""
    hx = op["hx"]
    if all(map(_is_zero, hx)):
        return [None] * count
    for each in hx:
        if not isinstance(each, Value) or op.made.maker_of(each).type != "Input":
            op.refuse(
                "its first state is learned, computed or no zeros, and no gradient flows to it, as in Caffe",
                "make it an input of the module, or leave it out",
            )
    hidden, cell = (states(op, op.as_blob(each), f"first_{name}") for each, name in zip(hx, "hc", strict=True))
    return list(zip(hidden, cell, strict=True))


def gru_cell(op: Operation) -> Value:
    """gru_cell: InnerProducts, Slices, Sigmoid, TanH and Eltwises."""
    weight, recurrent, bias, other = (op.constant(name) for name in ("w_ih", "w_hh", "b_ih", "b_hh"))
    assert weight is not None and recurrent is not None
    x = unrolled.linear(op, op.blob("input"), weight, bias, "input")
    return gated_step(recurrent, other)(op, x, _before(op, recurrent), "step")


def _plain_cell(kind: str) -> Callable[[Operation], Value]:
    def convert(op: Operation) -> Value:
        weight, recurrent, *biases = (op.constant(name) for name in ("w_ih", "w_hh", "b_ih", "b_hh"))
        assert weight is not None and recurrent is not None
        own = [weight, recurrent, *(each for each in biases if each is not None)]
        cell = _plain(own, kind)
        x = unrolled.linear(op, op.blob("input"), weight, cell.bias, "input")
        return cell.step(op, x, _before(op, recurrent), "step")

    convert.__doc__ = f"InnerProducts, Eltwise and {kind}."
    return convert


def _before(op: Operation, recurrent: Constant) -> Value:
    """Return the state that a cell begins with, (N, H)."""
    value = _state(op, op["hx"])
    if value is not None:
        return value
    x = op.blob("input")
    size = recurrent.tensor.shape[1]
    zeros = zero_state(op, reshaped(op, x, (1, *x.shape), "one_step"), size)
    return reshaped(op, zeros, (x.shape[0], size), "zeros")


OPERATORS: Mapping[str, Callable[[Operation], Result]] = {
    "lstm": lstm,
    "lstm_cell": lstm_cell,
    "gru": gru,
    "gru_cell": gru_cell,
    "rnn_tanh": rnn_tanh,
    "rnn_tanh_cell": _plain_cell("TanH"),
    "rnn_relu": rnn_relu,
    "rnn_relu_cell": _plain_cell("ReLU"),
}
