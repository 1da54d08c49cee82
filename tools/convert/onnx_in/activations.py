"""Operators that compute every value from one, and those that change none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mgcaffe.tools.convert.importing import activations
from mgcaffe.tools.convert.importing.shapes import reshaped
from mgcaffe.tools.convert.importing.values import Constant, Value
from mgcaffe.tools.convert.onnx_in.operation import Operation, Result, Table
from mgcaffe.tools.convert.onnx_in.tensors import FLOATS, WHOLE_NUMBERS


def _plain(kind: str, **fields: Any) -> Callable[[Operation], Value]:
    """Return the function of an operator that is a layer of that type, always with these fields."""

    def convert(op: Operation) -> Value:
        return op.layer(kind, [op.blob()], **fields)

    convert.__doc__ = f"{kind}."
    return convert


def clip(op: Operation) -> Value:
    """Clip, or ReLU or ReLU6 where it is that."""
    if op.opset >= 11:
        low, high = (op.number(number, what) for number, what in ((1, "min"), (2, "max")))
    else:
        low, high = op.real("min", -activations.LARGEST), op.real("max", activations.LARGEST)
    for bound in (low, high):
        if bound is not None and math.isnan(bound):
            op.refuse("a bound is no number")
    low = None if low is None or low <= -activations.LARGEST else low
    high = None if high is None or high >= activations.LARGEST else high
    x = op.blob()
    if low is None and high is None:
        return x
    return activations.clipped(op, x, low, high)


def leaky_relu(op: Operation) -> Value:
    """ReLU with a slope."""
    return op.layer("ReLU", [op.blob()], relu_param={"negative_slope": op.real("alpha", 0.01)})


def elu(op: Operation) -> Value:
    """ELU."""
    return op.layer("ELU", [op.blob()], elu_param={"alpha": op.real("alpha", 1.0)})


def selu(op: Operation) -> Value:
    """ELU, Power."""
    alpha, gamma = op.real("alpha", 1.67326319217681884765625), op.real("gamma", 1.05070102214813232421875)
    return activations.selu(op, op.blob(), alpha=alpha, gamma=gamma)


def gelu(op: Operation) -> Value:
    """GELU."""
    mode = op.word("approximate", "none")
    if mode not in ("none", "tanh"):
        op.refuse(f"its approximate is '{mode}', which does not exist")
    return op.layer("GELU", [op.blob()], gelu_param={"approximate": "TANH"} if mode == "tanh" else {})


def hard_sigmoid(op: Operation) -> Value:
    """HardSigmoid."""
    param = {"alpha": op.real("alpha", 0.2), "beta": op.real("beta", 0.5)}
    return op.layer("HardSigmoid", [op.blob()], hard_sigmoid_param=param)


def swish(op: Operation) -> Value:
    """Swish."""
    beta = op.real("alpha", 1.0)
    return op.layer("Swish", [op.blob()], swish_param={"beta": beta} if beta != 1 else {})


def mish(op: Operation) -> Value:
    """BNLL, TanH, Eltwise PROD."""
    return activations.mish(op, op.blob())


def celu(op: Operation) -> Value:
    """ELU, between Powers unless alpha is 1."""
    return activations.celu(op, op.blob(), op.real("alpha", 1.0))


def softsign(op: Operation) -> Value:
    """AbsVal, Power, Eltwise PROD."""
    return activations.softsign(op, op.blob())


def thresholded(op: Operation) -> Value:
    """Threshold, Eltwise PROD."""
    return activations.thresholded(op, op.blob(), op.real("alpha", 1.0), 0)


def softmax(op: Operation) -> Value:
    """Softmax; before opset 13 over all axes from one on, by a Flatten or Reshape and back."""
    return _normalized(op, activations.softmax)


def log_softmax(op: Operation) -> Value:
    """Softmax, Log; before opset 13 as Softmax."""
    return _normalized(op, activations.log_softmax)


def _normalized(op: Operation, add: Callable[[Operation, Value, int], Value]) -> Value:
    x = op.blob()
    rank = len(x.shape)
    axis = op.axis(op.integer("axis", -1 if op.opset >= 13 else 1), rank)
    if axis == 0 and x.shape[0] != 1:
        op.refuse("it goes over the batch axis, over which no layer but a loss goes")
    behind = math.prod(x.shape[axis + 1 :])
    if op.opset >= 13 or behind == 1:
        return add(op, x, axis)
    axis = max(axis, 1)
    flat = (*x.shape[:axis], math.prod(x.shape[axis:]))
    op.shape = flat
    y = add(op, reshaped(op, x, flat, "flat"), axis)
    op.shape = x.shape
    return reshaped(op, y, x.shape, "back")


def dropout(op: Operation) -> Value:
    """Dropout."""
    for name in op.node.outputs[1:]:
        if name and (op.graph.readers.get(name) or name in op.graph.outputs):
            op.refuse(f"'{name}', which tells what is dropped, is read")
    ratio = op.number(1, "ratio") if op.opset >= 12 else op.real("ratio", 0.5)
    ratio = 0.5 if ratio is None else ratio
    if op.opset >= 12 and op.number(2, "training_mode"):
        op.refuse("it drops values, as in training", "export the model in evaluation mode")
    if not 0 <= ratio < 1:
        op.refuse(f"its ratio is {ratio:g}, not between 0 and 1")
    x = op.blob()
    return op.layer("Dropout", [x], dropout_param={"dropout_ratio": ratio}) if ratio else x


def cast(op: Operation) -> Result:
    """Nothing, between types of floating-point numbers, and to whole numbers for Gather."""
    kind, value = op.integer("to", 0), op.input(0)
    if kind in WHOLE_NUMBERS and isinstance(value, Value) and op.node.outputs[0] not in op.graph.outputs:
        return value if value.whole else replace(op.as_blob(value), whole=True)
    if kind not in FLOATS:
        op.refuse("it makes numbers of another type; blobs hold floats, and integers for Embed and EmbeddingBag")
    return unchanged(op)


def unchanged(op: Operation) -> Result:
    """Nothing."""
    value = op.input(0)
    if value is None:
        op.refuse("its input 0 is missing")
    return value if isinstance(value, Constant) else op.as_blob(value, padded=True)


OPERATORS: Table = {
    "Relu": _plain("ReLU"),
    "Clip": clip,
    "LeakyRelu": leaky_relu,
    "Elu": elu,
    "Selu": selu,
    "Gelu": gelu,
    "Sigmoid": _plain("Sigmoid"),
    "HardSigmoid": hard_sigmoid,
    "HardSwish": _plain("HardSwish"),
    "Swish": swish,
    "Mish": mish,
    "Tanh": _plain("TanH"),
    "Celu": celu,
    "Softsign": softsign,
    "ThresholdedRelu": thresholded,
    "Softplus": _plain("BNLL"),
    "Softmax": softmax,
    "LogSoftmax": log_softmax,
    "Abs": _plain("AbsVal"),
    "Exp": _plain("Exp"),
    "Log": _plain("Log"),
    "Neg": _plain("Power", power_param={"scale": -1}),
    "Sqrt": _plain("Power", power_param={"power": 0.5}),
    "Reciprocal": _plain("Power", power_param={"power": -1}),
    "Dropout": dropout,
    "Identity": unchanged,
    "Cast": cast,
}
