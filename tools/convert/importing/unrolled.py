"""Recurrent cells that Caffe has no layer of, as layers for each time step, which share their parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mgcaffe.tools.convert.importing.filters import inner_product
from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.shapes import cut, joined
from mgcaffe.tools.convert.importing.values import Constant, Value

MOST_STEPS = 512
"""So many steps become layers of their own; each takes up to a dozen."""

Step = Callable[[Operation, Value, Value, str], Value]
"""Adds the layers of a step: given what the input gives the gates, the state before, and what the step is called."""


@dataclass(frozen=True)
class Cell:
    """One direction of one layer.

    Attributes:
        weight: of the input, (G, D) for G values of the gates.
        bias: of the input, (G), or None.
        step: what it does in each step.
        reverse: it goes from the last step to the first.
        part: what its layers are called behind the operator's name.
    """

    weight: Constant
    bias: Constant | None
    step: Step
    reverse: bool = False
    part: str = ""


def unrolled(op: Operation, x: Value, cell: Cell, state: Value) -> tuple[Value, Value]:
    """Add the layers of all steps.

    Args:
        op: the operator.
        x: (T, N, D).
        cell: what is done in each.
        state: before the first one, (1, N, H).

    Returns:
        The states after each step, (T, N, H) in the order of the input, and the last one, (1, N, H).
    """
    steps = x.shape[0]
    if steps > MOST_STEPS:
        op.refuse(f"it goes through {steps} steps, each of which becomes layers of its own; at most {MOST_STEPS} can")
    op.made.has_steps = True
    prefix = f"{cell.part}_" if cell.part else ""
    given = linear(op, x, cell.weight, cell.bias, f"{prefix}input")
    states: dict[int, Value] = {}
    parts = cut(op, given, 0, [1] * steps, f"{prefix}steps")
    for number in reversed(range(steps)) if cell.reverse else range(steps):
        state = states[number] = cell.step(op, parts[number], state, f"{prefix}{number}")
    return joined(op, [states[number] for number in range(steps)], 0, f"{prefix}all"), state


def linear(op: Operation, x: Value, weight: Constant, bias: Constant | None, part: str) -> Value:
    """Add an InnerProduct over the last axis."""
    wanted, op.shape = op.shape, (*x.shape[:-1], weight.tensor.shape[0])
    y = inner_product(op, x, weight, bias, part)
    op.shape = wanted
    return y


def plain_step(recurrent: Constant, bias: Constant | None, kind: str) -> Step:
    """Return h' = f(x + R h + b), where f is TanH or ReLU."""

    def step(op: Operation, x: Value, state: Value, part: str) -> Value:
        h = linear(op, state, recurrent, bias, f"{part}_recurrent")
        return op.layer(kind, [_sum(op, x, h, f"{part}_sum")], x.shape, part=part)

    return step


def gated_step(recurrent: Constant, bias: Constant | None) -> Step:
    """Return the step of PyTorch's GRU, with the gates r, z and n in this order.

    r, z = sigmoid(x + R h + b),  n = tanh(x + r (R h + b)),  h' = n + z (h - n)
    """

    def step(op: Operation, x: Value, state: Value, part: str) -> Value:
        size = state.shape[-1]
        axis = len(x.shape) - 1
        h = linear(op, state, recurrent, bias, f"{part}_recurrent")
        x_gates, x_new = cut(op, x, axis, [2 * size, size], f"{part}_input")
        h_gates, h_new = cut(op, h, axis, [2 * size, size], f"{part}_state")
        reset, update = _gates(op, x_gates, h_gates, part)
        new = _sum(op, x_new, _product(op, reset, h_new, f"{part}_reset"), f"{part}_sum")
        return _mixed(op, new, update, state, part)

    return step


def gated_step_before(gates: tuple[Constant, Constant | None], new: tuple[Constant, Constant | None]) -> Step:
    """Return the step of a GRU that resets the state before it is multiplied: n = tanh(x + R (r h) + b).

    Args:
        gates: R (2 H, H) and b (2 H) of r and z.
        new: R (H, H) and b (H) of n.
    """

    def step(op: Operation, x: Value, state: Value, part: str) -> Value:
        size = state.shape[-1]
        x_gates, x_new = cut(op, x, len(x.shape) - 1, [2 * size, size], f"{part}_input")
        reset, update = _gates(op, x_gates, linear(op, state, *gates, f"{part}_recurrent"), part)
        h_new = linear(op, _product(op, reset, state, f"{part}_reset"), *new, f"{part}_new")
        return _mixed(op, _sum(op, x_new, h_new, f"{part}_sum"), update, state, part)

    return step


def _gates(op: Operation, x: Value, h: Value, part: str) -> Sequence[Value]:
    """Return r and z."""
    total = _sum(op, x, h, f"{part}_gates_sum")
    gates = op.layer("Sigmoid", [total], x.shape, part=f"{part}_gates")
    return cut(op, gates, len(x.shape) - 1, [x.shape[-1] // 2] * 2, f"{part}_gate")


def _mixed(op: Operation, new: Value, update: Value, state: Value, part: str) -> Value:
    """Return n + z (h - n) for what n is the tanh of."""
    new = op.layer("TanH", [new], new.shape, part=f"{part}_candidate")
    apart = op.layer("Eltwise", [state, new], new.shape, part=f"{part}_apart", eltwise_param={"coeff": [1, -1]})
    return _sum(op, new, _product(op, update, apart, f"{part}_update"), part)


def _sum(op: Operation, one: Value, two: Value, part: str) -> Value:
    return op.layer("Eltwise", [one, two], one.shape, part=part)


def _product(op: Operation, one: Value, two: Value, part: str) -> Value:
    return op.layer("Eltwise", [one, two], one.shape, part=part, eltwise_param={"operation": "PROD"})
