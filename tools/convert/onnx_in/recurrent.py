"""Operators that go through time steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mgcaffe.tools.convert.importing import unrolled
from mgcaffe.tools.convert.importing.recurrent import Cell, State, direction, states, with_gates, zero_state
from mgcaffe.tools.convert.importing.shapes import joined, permuted, reshaped
from mgcaffe.tools.convert.importing.unrolled import gated_step, gated_step_before, plain_step
from mgcaffe.tools.convert.importing.values import Constant, Value
from mgcaffe.tools.convert.onnx_in.operation import Operation, Table

_LSTM_GATES = (0, 2, 1, 3)
"""Where ONNX has Caffe's gates: its own order is input, output, forget, candidate."""
_GRU_GATES = (1, 0, 2)
"""Where ONNX has the gates r, z and n: its own order is z, r, n."""
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_APART = (0, 2, 1, 3)


@dataclass(frozen=True)
class _Direction:
    """The parameters of one direction.

    Attributes:
        weight: (G, D) for G values of the gates.
        recurrent: (G, H).
        biases: (G) each, of the input and of the state; None where there are none.
        reverse: it goes from the last step to the first.
        part: what its layers are called behind the operator's name.
    """

    weight: Constant
    recurrent: Constant
    biases: tuple[Constant, Constant] | None
    reverse: bool
    part: str

    def total_bias(self) -> Constant | None:
        """Return the sum of both biases."""
        if self.biases is None:
            return None
        one, two = self.biases
        return Constant(one.tensor + two.tensor, one.name, one.trained, movers=2)


def lstm(op: Operation) -> Sequence[Value]:
    """LSTM for each direction; Permute and InnerProduct around one that goes back."""
    if op.input(7) is not None:
        op.refuse("its gates look at the cell (P), which LSTM's do not")
    if op.integer("input_forget", 0):
        op.refuse("it couples two of its gates, which LSTM does not")
    x, turned, directions = _read(op, 4, ["Sigmoid", "Tanh", "Tanh"])
    size = directions[0].recurrent.tensor.shape[1]
    first = _states_of_lstm(op, (len(directions), x.shape[1], size), turned)
    found = []
    for number, each in enumerate(directions):
        bias = each.total_bias()
        cell = Cell(
            with_gates(each.weight, _LSTM_GATES),
            with_gates(each.recurrent, _LSTM_GATES),
            None if bias is None else with_gates(bias, _LSTM_GATES),
            first[number],
            each.reverse,
            each.part,
        )
        found.append(direction(op, x, cell))
    hidden, cells = zip(*(each.last for each in found), strict=True)
    last = [_last(op, values, name, turned) for name, values in (("last_h", hidden), ("last_c", cells))]
    return [_all_steps(op, [each.y for each in found], turned), *last]


def gru(op: Operation) -> Sequence[Value]:
    """InnerProduct over all steps, and layers for each step."""
    x, turned, directions = _read(op, 3, ["Sigmoid", "Tanh"])
    after = bool(op.integer("linear_before_reset", 0))
    cells = []
    for each in directions:
        weight, recurrent = (with_gates(one, _GRU_GATES) for one in (each.weight, each.recurrent))
        own, other = (None, None) if each.biases is None else (with_gates(one, _GRU_GATES) for one in each.biases)
        step = gated_step(recurrent, other) if after else gated_step_before(*_apart(recurrent, other))
        cells.append(unrolled.Cell(weight, own, step, each.reverse, each.part))
    return _unrolled(op, x, turned, cells, directions)


def rnn(op: Operation) -> Sequence[Value]:
    """InnerProduct over all steps, and InnerProduct, Eltwise and TanH or ReLU for each step."""
    named = op.node.attributes.get("activations")
    kind = "Relu" if isinstance(named, list) and named and named[0] == b"Relu" else "Tanh"
    x, turned, directions = _read(op, 1, [kind])
    layer = "ReLU" if kind == "Relu" else "TanH"
    cells = [
        unrolled.Cell(each.weight, each.total_bias(), plain_step(each.recurrent, None, layer), each.reverse, each.part)
        for each in directions
    ]
    return _unrolled(op, x, turned, cells, directions)


def _apart(
    recurrent: Constant, bias: Constant | None
) -> tuple[tuple[Constant, Constant | None], tuple[Constant, Constant | None]]:
    """Return what belongs to the gates r and z, and what to n."""
    size = recurrent.tensor.shape[1]
    gates, new = (
        (_rows(recurrent, part, name), None if bias is None else _rows(bias, part, name))
        for part, name in ((slice(0, 2 * size), "gates"), (slice(2 * size, None), "new"))
    )
    return gates, new


def _rows(weight: Constant, rows: slice, name: str) -> Constant:
    return Constant(weight.tensor[rows], f"{weight.name}.{name}", weight.trained)


def _unrolled(
    op: Operation, x: Value, turned: bool, cells: Sequence[unrolled.Cell], directions: Sequence[_Direction]
) -> Sequence[Value]:
    size = directions[0].recurrent.tensor.shape[1]
    given = op.input(5)
    shape = (len(cells), x.shape[1], size)
    is_zero = given is None or (isinstance(given, Constant) and not given.tensor.any())
    first = None if is_zero else states(op, _state(op, given, shape, "initial_h", turned), "first")
    found = [
        unrolled.unrolled(op, x, cell, first[number] if first else zero_state(op, x, size))
        for number, cell in enumerate(cells)
    ]
    last = _last(op, [each for _, each in found], "last_h", turned)
    return [_all_steps(op, [y for y, _ in found], turned), last]


def _read(op: Operation, gates: int, activations: Sequence[str]) -> tuple[Value, bool, list[_Direction]]:
    """Return the input (T, N, D), whether the batch comes first in the graph, and the parameters of each direction.

    Args:
        op: the operator.
        gates: how many it has.
        activations: those that are computed, for each direction.
    """
    x = op.blob()
    if len(x.shape) != 3:
        op.refuse(f"its input has shape {x.shape}, not (steps, batch, values)")
    turned = bool(op.integer("layout", 0))
    if turned:
        x = permuted(op, x, (1, 0, 2), "steps_first")
    way = op.word("direction", "forward")
    if way not in _DIRECTIONS:
        op.refuse(f"its direction is '{way}'")
    reverses = _DIRECTIONS[way]
    usual = [each.encode() for each in activations] * len(reverses)
    if op.node.attributes.get("activations", usual) != usual:
        op.refuse(f"its activations are not {', '.join(activations)}")
    lengths = op.numbers(4, "sequence_lens")
    if lengths is not None and set(lengths) != {x.shape[0]}:
        op.refuse(f"its sequences end before the last step (sequence_lens {lengths[:8]}), which no layer knows")
    if op.real("clip", 0.0):
        op.refuse("it clips what its gates get, which no layer does")
    return x, turned, _directions(op, gates, x.shape[2], reverses)


def _directions(op: Operation, gates: int, inputs: int, reverses: Sequence[bool]) -> list[_Direction]:
    count, recurrent = len(reverses), op.weight(2, "R")
    if recurrent.tensor.dim() != 3:
        op.refuse(f"its R has shape {tuple(recurrent.tensor.shape)}")
    hidden = recurrent.tensor.shape[2]
    recurrent = op.weight(2, "R", (count, gates * hidden, hidden))
    weight = op.weight(1, "W", (count, gates * hidden, inputs))
    if op.integer("hidden_size", hidden) != hidden:
        op.refuse(f"its hidden_size is {op.integer('hidden_size', hidden)}, and its R is for {hidden}")
    bias = None if op.input(3) is None else op.weight(3, "B", (count, 2 * gates * hidden))
    # Steps share parameters by name, also those that are computed in the file.
    weight, recurrent = _named(op, weight, "W"), _named(op, recurrent, "R")
    bias = None if bias is None else _named(op, bias, "B")
    return [
        _Direction(
            _part(weight, number),
            _part(recurrent, number),
            None if bias is None else _both(_part(bias, number)),
            reverse,
            ("reverse" if reverse else "forward") if count > 1 else "",
        )
        for number, reverse in enumerate(reverses)
    ]


def _named(op: Operation, weight: Constant, name: str) -> Constant:
    return weight if weight.name else replace(weight, name=op.layer_name(name))


def _part(weight: Constant, number: int) -> Constant:
    """Return what belongs to one direction."""
    name = f"{weight.name}.{number}" if len(weight.tensor) > 1 else weight.name
    return Constant(weight.tensor[number], name, weight.trained)


def _both(bias: Constant) -> tuple[Constant, Constant]:
    """Return the biases of the input and of the state."""
    size = len(bias.tensor) // 2
    return _rows(bias, slice(0, size), "input"), _rows(bias, slice(size, None), "state")


def _states_of_lstm(op: Operation, shape: tuple[int, int, int], turned: bool) -> list[State | None]:
    """Return the states that are inputs; None for zeros."""
    given = [op.input(number) for number in (5, 6)]
    if all(each is None or (isinstance(each, Constant) and not each.tensor.any()) for each in given):
        return [None] * shape[0]
    found = []
    for name, each in zip(("initial_h", "initial_c"), given, strict=True):
        if not isinstance(each, Value) or op.made.maker_of(each).type != "Input":
            op.refuse(
                f"its {name} is neither zeros nor an input, and both states have to be the same of these",
                "no gradient flows to the first state, as in Caffe",
            )
        found.append(states(op, _state(op, each, shape, name, turned), f"first_{name[-1]}"))
    return list(zip(*found, strict=True))


def _state(op: Operation, given: Any, shape: tuple[int, int, int], name: str, turned: bool) -> Value:
    """Return a state, (directions, N, H)."""
    value = op.as_blob(given)
    if turned:
        value = permuted(op, value, (1, 0, 2), f"{name}_turned")
    if value.shape != shape:
        op.refuse(f"its {name} has shape {value.shape}, not that of {shape[0]} direction(s)")
    return value


def _last(op: Operation, each: Sequence[Value], name: str, turned: bool) -> Value:
    """Return the states of all directions after the last step."""
    state = joined(op, each, 0, name)
    return permuted(op, state, (1, 0, 2), f"{name}_turned") if turned else state


def _all_steps(op: Operation, found: Sequence[Value], turned: bool) -> Value:
    """Return ONNX's Y, (T, directions, N, H), or (N, T, directions, H) for layout 1.

    Where what reads it takes the axis of directions out, it gets what there was before.
    """
    y = joined(op, found, 2, "both")
    if turned:
        y = permuted(op, y, (1, 0, 2), "batch_first")
    apart = reshaped(op, y, (*y.shape[:2], len(found), y.shape[2] // len(found)), "apart")
    op.made.remember(("shape", apart.blob, y.shape), y)
    if turned:
        return apart
    whole = permuted(op, apart, _APART, "y")
    op.made.remember(("order", whole.blob, _APART), apart)
    if len(found) == 1:
        op.made.remember(("shape", whole.blob, y.shape), y)
    return whole


OPERATORS: Table = {"LSTM": lstm, "GRU": gru, "RNN": rnn}
