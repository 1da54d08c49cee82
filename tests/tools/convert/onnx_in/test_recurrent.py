"""LSTM of ONNX: directions, layouts and states compute the same as in onnxruntime; what no layer has is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgcaffe.errors import NetError
from mgcaffe.tools.convert.caffe_side import CaffeSide, fitting_inputs
from mgcaffe.tools.convert.model import Model
from mgcaffe.tools.convert.onnx_files import read_onnx
from tests.support.onnx_models import converted, model, written
from tests.support.torchkit import layers_of, types_of

STEPS = (7, 3, 5)


def weights(directions: int = 1, hidden: int = 6, inputs: int = 5, gates: int = 4, **more: Any) -> dict[str, Any]:
    """Weights by the names that the bodies below have for them."""
    generator = np.random.default_rng(3)
    sizes = {"w": (gates * hidden, inputs), "r": (gates * hidden, hidden), "b": (2 * gates * hidden,)}
    found = {name: generator.normal(size=(directions, *size)).astype(np.float32) for name, size in sizes.items()}
    return {**found, **more}


def lstm(inputs: str = "x, w, r, b", fields: str = "", outputs: str = "a") -> str:
    comma = ", " if fields else ""
    return f"{outputs} = LSTM<hidden_size=6{comma}{fields}>({inputs})"


_GIVEN = "Reduction Power Slice Power Reshape Tile"
_BACK = "Permute InnerProduct Permute"
_BACKWARDS = 'direction="reverse"'
_FORWARD = 'direction="forward"'
_BOTH = 'direction="bidirectional"'
# Nodes, weights, and the types of the layers.
CASES = {
    "one direction": (f"{lstm()} y = Squeeze(a, one)", weights(one=[1]), f"{_GIVEN} LSTM Silence"),
    "squeezed by a reshape": (f"{lstm()} y = Reshape(a, s)", weights(s=[7, 3, -1]), f"{_GIVEN} LSTM Silence"),
    "all axes": (lstm(outputs="y"), weights(), f"{_GIVEN} LSTM Reshape Permute Silence"),
    "no bias": (f"{lstm('x, w, r')} y = Squeeze(a, one)", weights(one=[1]), f"{_GIVEN} LSTM Silence"),
    "backwards": (
        f"{lstm(fields=_BACKWARDS)} y = Squeeze(a, one)", weights(one=[1]),
        f"{_GIVEN} {_BACK} LSTM {_BACK} Silence"),
    "both directions, as PyTorch writes them": (
        f"{lstm(fields=_BOTH)} t = Transpose<perm=[0,2,1,3]>(a) y = Reshape(t, s)", weights(2, s=[0, 0, -1]),
        f"{_GIVEN} LSTM {_BACK} LSTM {_BACK} Concat Silence"),
    "both directions": (
        lstm(fields=_BOTH, outputs="y"), weights(2),
        f"{_GIVEN} LSTM {_BACK} LSTM {_BACK} Concat Reshape Permute Silence"),
    "the last state": (f"{lstm(outputs='a, y')}", weights(), f"{_GIVEN} LSTM Slice Silence"),
    "the last states of both directions": (
        f"{lstm(fields=_BOTH, outputs=', h')} s, t = Split<axis=0>(h) y = Concat<axis=2>(t, s)", weights(2),
        f"{_GIVEN} LSTM Slice {_BACK} LSTM Slice Concat Slice Concat Silence"),
    "the last cell": (f"{lstm(outputs='a, h, y')}", weights(), f"{_GIVEN} LSTM Silence"),
    "the last step": (f"{lstm()} y = Gather<axis=0>(a, last)", weights(last=np.array(-1)), None),
    "the mean of all steps": (f"{lstm()} y = ReduceMean<axes=[0]>(a)", weights(), None),
    "the mean of a GRU's only step": (
        "p = Reshape(x, s) a = GRU<hidden_size=6>(p, w, r, b) y = ReduceMean<axes=[0]>(a)",
        weights(gates=3, s=[1, 21, 5]), None),
    "lengths that are all the same": (
        f"{lstm('x, w, r, b, n')} y = Squeeze(a, one)", weights(one=[1], n=np.full(3, 7, np.int32)),
        f"{_GIVEN} LSTM Silence"),
    "states of zeros": (
        f"{lstm('x, w, r, b, , z, z')} y = Squeeze(a, one)", weights(one=[1], z=np.zeros((1, 3, 6), np.float32)),
        f"{_GIVEN} LSTM Silence"),
    "activations that are named": (
        lstm(fields='activations=["Sigmoid", "Tanh", "Tanh"]', outputs="y"), weights(),
        f"{_GIVEN} LSTM Reshape Permute Silence"),
    "one after the other": (
        f"{lstm()} m = Squeeze(a, one) {lstm('m, v, r, b', outputs='c')} y = Squeeze(c, one)",
        weights(one=[1], v=weights(inputs=6)["w"]), f"{_GIVEN} LSTM LSTM Silence"),
}  # fmt: skip


def other(kind: str, fields: str = "", inputs: str = "x, w, r, b", outputs: str = "a, h") -> str:
    """A GRU or RNN, and both of its results."""
    comma = ", " if fields else ""
    return f"{outputs} = {kind}<hidden_size=6{comma}{fields}>({inputs}) m = ReduceMean<axes=[0]>(a) y = Add(m, h)"


AFTER = "linear_before_reset=1"
OTHERS = {
    "GRU": (other("GRU"), weights(gates=3)),
    "GRU of PyTorch": (other("GRU", AFTER), weights(gates=3)),
    "GRU, both directions": (other("GRU", _BOTH), weights(2, gates=3)),
    "GRU of PyTorch, both directions": (other("GRU", f"{AFTER}, {_BOTH}"), weights(2, gates=3)),
    "GRU without biases": (other("GRU", inputs="x, w, r"), weights(gates=3)),
    "GRU of PyTorch without biases": (other("GRU", f"{AFTER}, {_BACKWARDS}", "x, w, r"), weights(gates=3)),
    "GRU from a state": (other("GRU", inputs="x, w, r, b, , s"), weights(gates=3, s=np.ones((1, 3, 6), np.float32))),
    "GRU from zeros": (other("GRU", inputs="x, w, r, b, , s"), weights(gates=3, s=np.zeros((1, 3, 6), np.float32))),
    "RNN": (other("RNN"), weights(gates=1)),
    "RNN of Relu": (other("RNN", f'activations=["Relu", "Relu"], {_BOTH}'), weights(2, gates=1)),
    "RNN without biases": (other("RNN", _BACKWARDS, "x, w, r"), weights(gates=1)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_cells_become_layers_for_each_step(name, tmp_path):
    body, given = OTHERS[name]
    converted(model(body, given, shape=STEPS), tmp_path)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize(("kind", "gates"), [("GRU", 3), ("RNN", 1)])
def test_all_steps_have_the_same_parameters(kind, gates, computed, tmp_path):
    body = f"v = Identity(w) q = Mul(r, one) {other(kind, inputs='x, v, q, b')}" if computed else other(kind)
    made = converted(model(body, weights(gates=gates, one=np.float32(1)), shape=STEPS), tmp_path)
    net = made.build()
    owners = [each for layer in net.layers for each in layer.parameters if each.owner is None]
    count = 6 if kind == "GRU" else 3  # R and the state's bias are two each in a GRU that resets first
    assert len(owners) == count and all(each.lr_mult for each in owners)


def test_the_sum_of_two_biases_moves_as_both_do(tmp_path):
    layers = layers_of(converted(model(f"{lstm(outputs='y')}", weights(), shape=STEPS), tmp_path))
    (layer,) = [each for each in layers if each.type == "LSTM"]
    assert [(each.lr_mult, each.decay_mult) for each in layer.param] == [(1, 1), (2, 0.5), (1, 1)]


@pytest.mark.parametrize(("low", "trained"), [(-np.inf, False), (-1e4, False), (-9.0, True)])
def test_what_masks_scores_is_not_trained(low, trained, tmp_path):
    mask = np.where(np.tri(5, dtype=bool), 0, low).astype(np.float32)
    (layer, _) = layers_of(converted(model("a = Add(x, m) y = Softmax(a)", {"m": mask}, shape=(2, 3, 5, 5)), tmp_path))
    assert layer.type == "Bias" and [each.lr_mult for each in layer.param] == ([] if trained else [0])


@pytest.mark.parametrize("name", CASES)
def test_an_lstm_becomes_layers_that_compute_the_same(name, tmp_path):
    body, given, types = CASES[name]
    made = types_of(converted(model(body, given, shape=STEPS), tmp_path))
    assert types is None or made == types.split()


def test_one_sequence_of_one_step(tmp_path):
    converted(
        model(
            f"{lstm(outputs='a, h')} c = Squeeze(a, one) y = Concat<axis=0>(c, h)", weights(one=[1]), shape=(1, 1, 5)
        ),
        tmp_path,
    )


def test_one_sequence_in_both_directions(tmp_path):
    converted(model(lstm(fields=_BOTH, outputs="a, y"), weights(2), shape=(2, 1, 5)), tmp_path)


def with_states(directions: int, fields: str = "", shape: tuple[int, ...] = STEPS) -> Any:
    """A model whose states are inputs and outputs."""
    message = model(lstm("x, w, r, b, , h, c", fields, "y, h2, c2"), weights(directions), opset=14, shape=shape)
    sizes = (shape[0], directions, 6) if "layout" in fields else (directions, shape[1], 6)
    for name in "hc":
        given = message.graph.input.add()
        given.CopyFrom(message.graph.input[0])
        given.name = name
        for dim, size in zip(given.type.tensor_type.shape.dim, sizes, strict=True):
            dim.dim_value = size
        message.graph.output.add().name = f"{name}2"
    return message


@pytest.mark.parametrize(("directions", "fields"), [(1, ""), (2, _BOTH)])
def test_states_may_be_inputs_and_outputs(directions, fields, tmp_path):
    converted(with_states(directions, fields), tmp_path)


@pytest.mark.parametrize("directions", [1, 2])
def test_the_batch_may_come_first(directions, tmp_path):
    # onnxruntime has no such layout: the same model with the other order, and transposed values, is what is expected.
    way = _BOTH if directions == 2 else _FORWARD
    model_of_steps = read_onnx(written(with_states(directions, way), tmp_path))
    found = read_onnx(written(with_states(directions, f"layout=1, {way}", (3, 7, 5)), tmp_path))
    given = fitting_inputs(model_of_steps.build())
    expected = named_values(model_of_steps, given)
    made = named_values(found, {name: np.ascontiguousarray(np.swapaxes(x, 0, 1)) for name, x in given.items()})
    np.testing.assert_allclose(made["y"], np.moveaxis(expected["y"], 2, 0), rtol=1e-5)
    for name in ("h2", "c2"):
        np.testing.assert_allclose(made[name], np.swapaxes(expected[name], 0, 1), rtol=1e-5)


def named_values(found: Model, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a net makes, by the names that the graph has for it."""
    return {
        found.names[blob]: values
        for blob, values in CaffeSide(found.build()).run(inputs).items()
        if blob in found.names
    }


# Nodes, weights, and what is said.
REFUSED = {
    "lengths": (lstm("x, w, r, b, n", outputs="y"), weights(n=np.array([7, 5, 3], np.int32)),
                r"end before the last step \(sequence_lens \[7, 5, 3\]\)"),
    "peepholes": (lstm("x, w, r, b, , , , p", outputs="y"), weights(p=(1, 18)), "its gates look at the cell"),
    "clip": (lstm(fields="clip=1.0", outputs="y"), weights(), "it clips what its gates get"),
    "GRU's activations": (other("GRU", 'activations=["Sigmoid", "Relu"]'), weights(gates=3), "are not Sigmoid, Tanh"),
    "RNN's activations": (other("RNN", 'activations=["Sigmoid"]'), weights(gates=1), "its activations are not Tanh"),
    "a state of another size": (other("RNN", inputs="x, w, r, b, , s"), weights(gates=1, s=(1, 3, 5)),
                                "its initial_h has shape"),
    "coupled gates": (lstm(fields="input_forget=1", outputs="y"), weights(), "couples two of its gates"),
    "activations": (lstm(fields='activations=["Sigmoid", "Tanh", "Relu"]', outputs="y"), weights(),
                    "its activations are not Sigmoid, Tanh, Tanh"),
    "a direction": (lstm(fields='direction="up"', outputs="y"), weights(), "its direction is 'up'"),
    "a size": (lstm("x, w, r, b", outputs="y").replace("=6", "=5"), weights(), "its hidden_size is 5"),
    "weights": (lstm(outputs="y"), weights(inputs=4), r"its W has shape \(1, 24, 4\), not \(1, 24, 5\)"),
    "weights of two directions": (lstm(outputs="y"), weights(2), r"its R has shape \(2, 24, 6\)"),
    "a matrix": (lstm(outputs="y"), weights(r=(24, 6)), r"its R has shape \(24, 6\)"),
    "biases": (lstm(outputs="y"), weights(b=(1, 24)), r"its B has shape \(1, 24\)"),
    "a state": (lstm("x, w, r, b, , h, h", outputs="y"), weights(h=(1, 3, 6)), "its initial_h is neither zeros nor"),
    "one state": (lstm("x, w, r, b, , h", outputs="y"), weights(h=(1, 3, 6)), "its initial_h is neither zeros nor"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_lstm_has_not_is_refused(name, tmp_path):
    body, given, said = REFUSED[name]
    with pytest.raises(NetError, match=said):
        read_onnx(written(model(body, given, shape=STEPS), tmp_path))


def test_two_axes_are_refused(tmp_path):
    with pytest.raises(NetError, match=r"its input has shape \(7, 5\), not \(steps, batch, values\)"):
        read_onnx(written(model(lstm(outputs="y"), weights(), shape=(7, 5)), tmp_path))


def test_a_state_of_another_size_is_refused(tmp_path):
    message = with_states(1)
    message.graph.input[1].type.tensor_type.shape.dim[2].dim_value = 4
    with pytest.raises(NetError, match="its initial_h has shape"):
        read_onnx(written(message, tmp_path))
