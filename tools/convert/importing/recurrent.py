"""Layers over time steps: LSTM, in one direction or both, one upon another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from mgcaffe.tools.convert.importing.axes import flipped
from mgcaffe.tools.convert.importing.filters import inner_product
from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.shapes import cut, range_of, reshaped
from mgcaffe.tools.convert.importing.values import Constant, Shape, Value

State = tuple[Value, Value]
"""What h and c are before the first step, or after the last, each (1, N, H)."""


@dataclass(frozen=True)
class Cell:
    """One direction of one layer, with the gates in the order of Caffe's LSTM: input, forget, output, candidate.

    Attributes:
        weight: (4 H, D).
        recurrent: (4 H, H).
        bias: (4 H), or None.
        first: the state before the first step; None: zeros.
        reverse: it goes from the last step to the first.
        part: what its layers are called behind the operator's name.
    """

    weight: Constant
    recurrent: Constant
    bias: Constant | None
    first: State | None = None
    reverse: bool = False
    part: str = ""


@dataclass(frozen=True)
class Direction:
    """What a cell makes.

    Attributes:
        y: of each step, (T, N, H), in the order of its input.
        last: the state after the step that it takes last. No gradient flows through its c, as in Caffe.
    """

    y: Value
    last: State


def with_gates(weight: Constant, blocks: Sequence[int]) -> Constant:
    """Return a parameter whose rows belong to gates, with these in another order.

    Args:
        weight: (gates x H, ...).
        blocks: of each gate, in the new order, which block of H rows it is now.
    """
    size = len(weight.tensor) // len(blocks)
    rows = [block * size + row for block in blocks for row in range(size)]
    return replace(weight, tensor=weight.tensor[rows], rows=rows)


def sum_of_biases(one: Constant, two: Constant) -> Constant:
    """Return the sum of two parameters of one gradient, which moves as both do together."""
    movers = [each for each in (one, two) if each.trained]
    first, second = (two, one) if two.trained and not one.trained else (one, two)
    total = one.tensor + two.tensor
    return Constant(total, first.name, bool(movers), first.rows, (second.name,), max(1, len(movers)))


def direction(op: Operation, x: Value, cell: Cell) -> Direction:
    """Add an LSTM that is given its first state, so that no call goes on from the one before.

    Args:
        op: the operator.
        x: (T, N, D).
        cell: what it computes.
    """
    steps, streams = x.shape[:2]
    hidden = cell.recurrent.tensor.shape[1]
    shape, state = (steps, streams, hidden), (1, streams, hidden)
    goes_on, zeros = _constants(op, x, hidden)
    first = cell.first or (zeros, zeros)
    bias = cell.bias or Constant(torch.zeros(4 * hidden))
    if cell.reverse:
        x = flipped(op, x, 0, _named(cell.part, "input_flip"))
    y, h, c = op.layers(
        "LSTM",
        [x, goes_on, *first],
        [shape, state, state],
        part=cell.part,
        blobs=[cell.weight, bias, cell.recurrent],
        propagate_down=[op.made.learns(x), False, False, False] if op.made.learns(goes_on) else [],
        recurrent_param={"num_output": hidden, "expose_hidden": True},
    )
    if steps > 1:  # not the state that is exposed: no gradient flows through that
        h = range_of(op, y, 0, (steps - 1, steps), part=_named(cell.part, "last"))
    else:
        h = op.layer("Reshape", [y], state, part=_named(cell.part, "last"), reshape_param={"shape": {"dim": [0, 0, 0]}})
    if cell.reverse:
        y = flipped(op, y, 0, _named(cell.part, "flip"))
    return Direction(y, (h, c))


def unit(op: Operation, x: Value, cell: Cell, hidden: Value | None, state: Value | None) -> State:
    """Add one step by itself: InnerProducts for the gates, and an LSTMUnit.

    Args:
        op: the operator.
        x: (N, D).
        cell: its parameters.
        hidden, state: h and c before the step, (N, H) each; None: zeros.

    Returns:
        h and c after it, (N, H) each.
    """
    streams, size = x.shape[0], cell.recurrent.tensor.shape[1]
    flat, whole = (streams, size), (1, streams, size)
    goes_on, zeros = _constants(op, reshaped(op, x, (1, *x.shape), "one_step"), size)
    wanted, op.shape = op.shape, (streams, 4 * size)
    gates = inner_product(op, x, cell.weight, cell.bias, "input")
    if hidden is not None:
        more = inner_product(op, hidden, cell.recurrent, None, "recurrent")
        gates = op.layer("Eltwise", [gates, more], part="gates")
    op.shape = wanted
    before = zeros if state is None else reshaped(op, state, whole, "state")
    bottoms = [before, reshaped(op, gates, (1, streams, 4 * size), "step"), goes_on]
    flows = [state is not None, True, False] if op.made.learns(goes_on) else []
    c, h = op.layers("LSTMUnit", bottoms, [whole, whole], propagate_down=flows)
    return reshaped(op, h, flat, "h"), reshaped(op, c, flat, "c")


def _named(part: str, what: str) -> str:
    return f"{part}_{what}" if part else what


def _constants(op: Operation, x: Value, hidden: int) -> tuple[Value, Value]:
    """Return the indicators of sequences that go on, (T, N), and a state of zeros, (1, N, H).

    Both are made of the sequence's own axes, for any batch size; layers of the same sizes share them.
    """
    steps, streams = x.shape[:2]

    def add(name: str, kind: str, bottom: Value, shape: Shape, **fields: Any) -> Value:
        return op.made.add(f"sequence.{name}", kind, [bottom], [shape], (), fields)[0]

    def indicators() -> list[Value]:
        sums = add("sums", "Reduction", x, (steps, streams), reduction_param={"axis": 2})
        return [add("goes_on", "Power", sums, (steps, streams), power_param={"scale": 0, "shift": 1})]

    def state() -> list[Value]:
        first = goes_on
        if steps > 1:
            param = {"axis": 0, "slice_point": [1]}
            shapes = [(1, streams), (steps - 1, streams)]
            first = op.made.add("sequence.first", "Slice", [goes_on], shapes, (), {"slice_param": param})[0]
        zeros = add("zeros", "Power", first, (1, streams), power_param={"scale": 0})
        apart = add("state", "Reshape", zeros, (1, streams, 1), reshape_param={"shape": {"dim": [0, 0, 1]}})
        return [add("first_state", "Tile", apart, (1, streams, hidden), tile_param={"axis": 2, "tiles": hidden})]

    (goes_on,) = op.remembered(("sequence", steps, streams), indicators)
    (zeros,) = op.remembered(("sequence", steps, streams, hidden), state)
    return goes_on, zeros


def zero_state(op: Operation, x: Value, hidden: int) -> Value:
    """Return a state of zeros, (1, N, hidden), for an input (T, N, D)."""
    return _constants(op, x, hidden)[1]


def states(op: Operation, value: Value, part: str) -> list[Value]:
    """Return the states (1, N, H) of layers and directions that are one value, (count, N, H)."""
    return op.remembered((value.blob, "states"), lambda: cut(op, value, 0, [1] * value.shape[0], part))
