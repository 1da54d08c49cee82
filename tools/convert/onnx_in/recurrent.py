"""Operators that go through time steps."""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.tools.convert.importing.recurrent import Cell, Direction, State, direction, states, with_gates
from mgcaffe.tools.convert.importing.shapes import joined, permuted, reshaped
from mgcaffe.tools.convert.importing.values import Constant, Value
from mgcaffe.tools.convert.onnx_in.operation import Operation, Table

_GATES = (0, 2, 1, 3)
"""Where ONNX has Caffe's gates: its own order is input, output, forget, candidate."""
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_APART = (0, 2, 1, 3)


def lstm(op: Operation) -> Sequence[Value]:
    """LSTM for each direction; Permute and InnerProduct around one that goes back."""
    x = op.blob()
    if len(x.shape) != 3:
        op.refuse(f"its input has shape {x.shape}, not (steps, batch, values)")
    turned = bool(op.integer("layout", 0))
    if turned:
        x = permuted(op, x, (1, 0, 2), "steps_first")
    cells = _cells(op, x, turned)
    _refuse_what_no_layer_has(op, x, len(cells))
    found = [direction(op, x, cell) for cell in cells]
    last = []
    for name, each in zip(("last_h", "last_c"), zip(*(each.last for each in found), strict=True), strict=True):
        state = joined(op, each, 0, name)
        last.append(permuted(op, state, (1, 0, 2), f"{name}_turned") if turned else state)
    return [_all_steps(op, found, turned), *last]


def _cells(op: Operation, x: Value, turned: bool) -> list[Cell]:
    way = op.word("direction", "forward")
    if way not in _DIRECTIONS:
        op.refuse(f"its direction is '{way}'")
    reverses = _DIRECTIONS[way]
    count, recurrent = len(reverses), op.weight(2, "R")
    if recurrent.tensor.dim() != 3:
        op.refuse(f"its R has shape {tuple(recurrent.tensor.shape)}")
    hidden = recurrent.tensor.shape[2]
    recurrent = op.weight(2, "R", (count, 4 * hidden, hidden))
    weight = op.weight(1, "W", (count, 4 * hidden, x.shape[2]))
    if op.integer("hidden_size", hidden) != hidden:
        op.refuse(f"its hidden_size is {op.integer('hidden_size', hidden)}, and its R is for {hidden}")
    bias = None if op.input(3) is None else op.weight(3, "B", (count, 8 * hidden))
    first = _first_states(op, (count, x.shape[1], hidden), turned)
    return [
        Cell(
            with_gates(_part(weight, number), _GATES),
            with_gates(_part(recurrent, number), _GATES),
            None if bias is None else with_gates(_sum(_part(bias, number)), _GATES),
            first[number],
            reverse,
            ("reverse" if reverse else "forward") if count > 1 else "",
        )
        for number, reverse in enumerate(reverses)
    ]


def _part(weight: Constant, number: int) -> Constant:
    """Return what belongs to one direction."""
    name = f"{weight.name}.{number}" if weight.name and len(weight.tensor) > 1 else weight.name
    return Constant(weight.tensor[number], name, weight.trained)


def _sum(bias: Constant) -> Constant:
    """Return the sum of the biases of input and state."""
    one, two = bias.tensor.chunk(2)
    return Constant(one + two, bias.name, bias.trained)


def _first_states(op: Operation, shape: tuple[int, int, int], turned: bool) -> list[State | None]:
    """Return the states that are inputs; None for zeros."""
    given = [op.input(number) for number in (5, 6)]
    if all(each is None or (isinstance(each, Constant) and not each.tensor.any()) for each in given):
        return [None] * shape[0]
    found = []
    for name, each in zip("hc", given, strict=True):
        if not isinstance(each, Value) or op.made.maker_of(each).type != "Input":
            op.refuse(
                f"its initial_{name} is neither zeros nor an input, as that of both has to be where one is; no gradient"
                " flows to it, as in Caffe"
            )
        value = permuted(op, op.as_blob(each), (1, 0, 2), f"first_{name}_turned") if turned else op.as_blob(each)
        if value.shape != shape:
            op.refuse(f"its initial_{name} has shape {each.shape}, not that of {shape[0]} direction(s)")
        found.append(states(op, value, f"first_{name}"))
    return list(zip(*found, strict=True))


def _refuse_what_no_layer_has(op: Operation, x: Value, directions: int) -> None:
    lengths = op.numbers(4, "sequence_lens")
    if lengths is not None and set(lengths) != {x.shape[0]}:
        op.refuse(f"its sequences end before the last step (sequence_lens {lengths[:8]}), which no layer knows")
    if op.input(7) is not None:
        op.refuse("its gates look at the cell (P), which LSTM's do not")
    if op.real("clip", 0.0) or op.integer("input_forget", 0):
        op.refuse("it clips what its gates get, or couples two of them, which LSTM does not")
    usual = [b"Sigmoid", b"Tanh", b"Tanh"] * directions
    if op.node.attributes.get("activations", usual) != usual:
        op.refuse("its activations are not Sigmoid, Tanh and Tanh")


def _all_steps(op: Operation, found: Sequence[Direction], turned: bool) -> Value:
    """Return ONNX's Y, (T, directions, N, H), or (N, T, directions, H) for layout 1.

    Where what reads it takes the axis of directions out, it gets what there was before.
    """
    y = joined(op, [each.y for each in found], 2, "both")
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


OPERATORS: Table = {"LSTM": lstm}
