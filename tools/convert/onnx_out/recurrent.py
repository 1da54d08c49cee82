"""Recurrent layers in ONNX: a Scan over the time steps.

ONNX's own LSTM and RNN cannot begin a sequence anew in the middle, as the sequence indicators do, and know no static
input. Scan runs a small graph for each step, which reads the weights from the graph around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import helper

from mgcaffe.engine.layers.lstm import LSTM
from mgcaffe.engine.layers.lstm_unit import LSTMUnit
from mgcaffe.engine.layers.rnn import RNN
from mgcaffe.engine.layers.shared.recurrent import RecurrentLayer
from mgcaffe.tools.convert.allowances import CARRIED_STATE
from mgcaffe.tools.convert.onnx_out.emitter import Emitter, Operator
from mgcaffe.tools.convert.onnx_out.graph import value_info


class _Nodes(Protocol):
    """What nodes are added to: the graph, or the body of a Scan."""

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output and return that."""

    def nodes(self, operator: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        """Add a node and return its outputs."""


class _Body:
    """The nodes of a Scan's body, which computes one step."""

    def __init__(self) -> None:
        self.added: list[onnx.NodeProto] = []

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output and return that."""
        return self.nodes(operator, inputs, 1, **attributes)[0]

    def nodes(self, operator: str, inputs: Sequence[str], outputs: int, **attributes: Any) -> list[str]:
        """Add a node and return its outputs."""
        values = [f"step:{len(self.added)}:{number}" for number in range(outputs)]
        self.added.append(helper.make_node(operator, inputs, values, **attributes))
        return values


def lstm(e: Emitter, layer: LSTM) -> list[str]:
    """Gemm over all steps' inputs, and a Scan whose body is the unit's formula."""
    hidden, cell = _first_state(e, layer)
    body = _Body()
    gates = _recurrent_sum(e, body, len(layer.parameters) - 1)
    new_cell, new_hidden = _unit(body, gates, body.node("Mul", "step:c", "step:keep"))
    every = body.node("Identity", new_hidden)
    *final, y = _scan(e, layer, body, {"step:h": hidden, "step:c": cell}, [new_hidden, new_cell, every])
    return _with_state(e, layer, y, final)


def rnn(e: Emitter, layer: RNN) -> list[str]:
    """Gemm over all steps' inputs, a Scan of Tanh over what is added from the step before, and Gemm and Tanh."""
    (hidden,) = _first_state(e, layer)
    body = _Body()
    recurrent, outward, bias = (len(layer.parameters) - back for back in (3, 2, 1))
    new_hidden = body.node("Tanh", _recurrent_sum(e, body, recurrent))
    every = body.node("Identity", new_hidden)
    final, hiddens = _scan(e, layer, body, {"step:h": hidden}, [new_hidden, every])
    rows = e.reshape(hiddens, (-1, layer.hidden))
    y = e.node("Tanh", e.node("Gemm", rows, e.weight(outward), e.weight(bias), transB=1))
    return _with_state(e, layer, e.reshape(y, e.top_shapes[0]), [final])


def lstm_unit(e: Emitter, layer: LSTMUnit) -> list[str]:
    """Split, Sigmoid, Tanh, Mul and Add, by the unit's formula."""
    cell, gates, indicators = e.bottoms
    keep = e.reshape(indicators, (1, e.bottom_shapes[0][1], 1))
    return list(_unit(e, gates, e.node("Mul", cell, keep)))


def _unit(nodes: _Nodes, gates: str, kept_cell: str) -> tuple[str, str]:
    """Add c' = sigmoid(f) c + sigmoid(i) tanh(g) and h' = sigmoid(o) tanh(c'); return c' and h'."""
    *inputs, candidate = nodes.nodes("Split", [gates], 4, axis=-1, num_outputs=4)
    enter, forget, leave = (nodes.node("Sigmoid", value) for value in inputs)
    added = nodes.node("Mul", enter, nodes.node("Tanh", candidate))
    cell = nodes.node("Add", nodes.node("Mul", forget, kept_cell), added)
    return cell, nodes.node("Mul", leave, nodes.node("Tanh", cell))


def _recurrent_sum(e: Emitter, body: _Body, number: int) -> str:
    """Add to the body: what comes from a step's input, plus parameter `number` times the kept h."""
    weight = e.node("Transpose", e.weight(number), perm=[1, 0])
    kept = body.node("Mul", "step:h", "step:keep")
    return body.node("Add", "step:gates", body.node("MatMul", kept, weight))


def _first_state(e: Emitter, layer: RecurrentLayer) -> list[str]:
    """Return the state before the first step, each part (N, H)."""
    streams = e.bottom_shapes[0][1]
    if layer.exposed:
        return [e.reshape(bottom, (streams, layer.hidden)) for bottom in e.bottoms[-layer.exposed :]]
    e.need_allowance(
        CARRIED_STATE,
        "its state goes on from one run to the next",
        "each run begins with zeros; expose_hidden: true makes inputs and outputs of the state",
    )
    return [e.floats(np.zeros((streams, layer.hidden), np.float32)) for _ in layer.state_names]


def _scan(e: Emitter, layer: RecurrentLayer, body: _Body, state: Mapping[str, str], results: list[str]) -> list[str]:
    """Add a Scan of the body over all steps.

    Args:
        e: where to.
        layer: the layer.
        body: one step; reads its part of the state, `step:gates` (N, G) and `step:keep` (N, 1).
        state: the names of the first state's parts, by what the body calls them.
        results: the body's next state, then what it gives for every step, (N, H) each.

    Returns:
        The final state's parts, (N, H) each, then the values of all steps, (T, N, H).
    """
    steps, streams = e.bottom_shapes[0][:2]
    hidden, gates = (streams, layer.hidden), (streams, layer.gates * layer.hidden)
    inputs = [value_info(name, hidden) for name in state]
    inputs += [value_info("step:gates", gates), value_info("step:keep", (streams, 1))]
    outputs = [value_info(name, hidden) for name in results]
    graph = helper.make_graph(body.added, f"{layer.name}:step", inputs, outputs)
    keep = e.reshape(e.bottoms[1], (steps, streams, 1))
    return e.nodes("Scan", [*state.values(), _transformed(e, layer), keep], len(results), body=graph, num_scan_inputs=2)


def _transformed(e: Emitter, layer: RecurrentLayer) -> str:
    """Return W x + b, plus W_static times the static input: (T, N, G)."""
    steps, streams, *rest = e.bottom_shapes[0]
    rows = e.reshape(e.x, (steps * streams, int(np.prod(rest))))
    flat = e.node("Gemm", rows, e.weight(0), e.weight(1), transB=1)
    y = e.reshape(flat, (steps, streams, layer.gates * layer.hidden))
    if not layer.has_static:
        return y
    static = e.node("Flatten", e.bottoms[2], axis=1)
    return e.node("Add", y, e.node("Gemm", static, e.weight(2), transB=1))


def _with_state(e: Emitter, layer: RecurrentLayer, y: str, final: Sequence[str]) -> list[str]:
    """Return the tops: y, and the state after the last step where it is exposed."""
    if not layer.exposed:
        return [y]
    return [y, *(e.reshape(part, (1, e.bottom_shapes[0][1], layer.hidden)) for part in final)]


_STATE = {"expose_hidden: false": "unless `--allow=carried_state`: the state goes on from one run to the next"}
_UNIT = "Split, Sigmoid, Tanh, Mul, Add"

OPERATORS = (
    Operator("LSTM", lstm, "Reshape, Gemm, Flatten, Add, Transpose, Scan", _STATE, ("debug_info",)),
    Operator("RNN", rnn, "Reshape, Gemm, Flatten, Add, Transpose, Scan, Tanh", _STATE, ("debug_info",)),
    Operator("LSTMUnit", lstm_unit, f"Reshape, {_UNIT}"),
)
