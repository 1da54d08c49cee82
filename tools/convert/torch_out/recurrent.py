"""Recurrent layers in PyTorch: modules of the written file.

PyTorch's own nn.LSTM and nn.RNN cannot begin a sequence anew in the middle, as the sequence indicators do, and know no
static input.
"""

from __future__ import annotations

from collections.abc import Mapping

from mgcaffe.engine.layers.lstm import LSTM
from mgcaffe.engine.layers.lstm_unit import LSTMUnit
from mgcaffe.engine.layers.rnn import RNN
from mgcaffe.engine.layers.shared.recurrent import RecurrentLayer
from mgcaffe.tools.convert.allowances import CARRIED_STATE
from mgcaffe.tools.convert.torch_out.emitter import Blob, Emitter, Operator, Together, call


def lstm(e: Emitter, layer: LSTM) -> list[str] | Together:
    """`LSTM`, the formula step by step."""
    last = len(layer.parameters) - 1
    return _recurrent(e, layer, "LSTM", {"recurrent.weight": Blob(last)})


def rnn(e: Emitter, layer: RNN) -> list[str] | Together:
    """`RNN`, the formula step by step."""
    first = len(layer.parameters) - 3
    names = ("recurrent.weight", "output.weight", "output.bias")
    return _recurrent(e, layer, "RNN", {name: Blob(first + place) for place, name in enumerate(names)})


def _recurrent(e: Emitter, layer: RecurrentLayer, name: str, own: Mapping[str, Blob]) -> list[str] | Together:
    carries = not layer.exposed
    if carries and e.stateless:
        e.need_allowance(
            CARRIED_STATE,
            "its state goes on from one run to the next, which a .pt2 file cannot say",
            "each run begins with zeros; expose_hidden: true makes inputs and outputs of the state, and a .py file can"
            " say it",
        )
        carries = False
    blobs = {"input.weight": Blob(0), "input.bias": Blob(1), **own}
    fields = {"carries_state": (str(carries), "False")}
    if layer.has_static:
        blobs["static.weight"] = Blob(2)
        fields = {"static": (str(layer.parameters[2].shape[1]), "0"), **fields}
    sizes = (str(layer.parameters[0].shape[1]), str(layer.hidden))
    module = e.whole_attribute(call(e.helper(name), *sizes, **fields), blobs)
    inputs = e.bottoms[: 3 if layer.has_static else 2]
    if not layer.exposed:
        return [f"{call(module, *inputs)}[0]"]
    state = e.bottoms[-layer.exposed :]
    text = state[0] if len(state) == 1 else f"({', '.join(state)})"
    return Together(call(module, *inputs, state=(text, "")))


def lstm_unit(e: Emitter, layer: LSTMUnit) -> Together:
    """`lstm_unit`, the formula."""
    return Together(call(e.helper("lstm_unit"), *e.bottoms))


_STATE = {
    "expose_hidden: false": "in a .pt2 file, unless `--allow=carried_state`: the state goes on from one run to the next"
}

OPERATORS = (
    Operator("LSTM", lstm, "LSTM", _STATE, ("debug_info",)),
    Operator("RNN", rnn, "RNN", _STATE, ("debug_info",)),
    Operator("LSTMUnit", lstm_unit, "lstm_unit"),
)
