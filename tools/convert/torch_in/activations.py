"""Operators that compute every value from one, and those that change none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from torch.fx import Node

from mgcaffe.tools.convert.importing import activations
from mgcaffe.tools.convert.importing.shapes import cut
from mgcaffe.tools.convert.importing.values import Constant, Result, Value
from mgcaffe.tools.convert.torch_in.operation import (
    Operation,
    arguments_of,
    holds_whole_numbers,
    is_counted,
    operator_name,
)

SELU_ALPHA, SELU_FACTOR = 1.6732632423543772, 1.0507009873554805
"""What PyTorch's SELU computes with."""
_SOFTPLUS_THRESHOLD = 20
"""PyTorch's own. From there on softplus is a line but for 2e-9, less than float32's rounding."""


def _plain(kind: str, **fields: Any) -> Callable[[Operation], Value]:
    """Return the function of an operator that is a layer of that type, always with these fields."""

    def convert(op: Operation) -> Value:
        return op.layer(kind, [op.blob()], **fields)

    convert.__doc__ = f"{kind}."
    return convert


def hardtanh(op: Operation) -> Value:
    """hardtanh: ReLU6 where it is that, else Clip."""
    return activations.clipped(op, op.blob(), op["min_val"], op["max_val"])


def clamp(op: Operation) -> Value:
    """clamp, clamp_min, clamp_max: ReLU or ReLU6 where they are that, else Clip."""
    low, high = (op.arguments.get(name) for name in ("min", "max"))
    for bound in (low, high):
        if bound is not None and not isinstance(bound, (int, float)):
            op.refuse("its bounds are tensors; Clip's are numbers")
    return activations.clipped(op, op.blob(), low, high)


def leaky_relu(op: Operation) -> Value:
    """leaky_relu: ReLU."""
    return op.layer("ReLU", [op.blob()], relu_param={"negative_slope": op["negative_slope"]})


def elu(op: Operation) -> Value:
    """elu: ELU."""
    if op["scale"] != 1 or op["input_scale"] != 1:
        op.refuse("ELU has no factors but alpha")
    return op.layer("ELU", [op.blob()], elu_param={"alpha": op["alpha"]})


def gelu(op: Operation) -> Value:
    """gelu: GELU."""
    tanh = op["approximate"] == "tanh"
    return op.layer("GELU", [op.blob()], gelu_param={"approximate": "TANH"} if tanh else {})


def selu(op: Operation) -> Value:
    """selu: ELU, Power."""
    return activations.selu(op, op.blob(), alpha=SELU_ALPHA, gamma=SELU_FACTOR)


def mish(op: Operation) -> Value:
    """mish: BNLL, TanH, Eltwise PROD."""
    return activations.mish(op, op.blob())


def glu(op: Operation) -> Value:
    """glu: Slice, Sigmoid, Eltwise PROD."""
    x = op.blob()
    axis = op["dim"] % len(x.shape)
    if axis == 0:
        op.refuse("it halves the batch axis, over which no layer but a loss goes")
    one, gate = cut(op, x, axis, [x.shape[axis] // 2] * 2)
    gate = op.layer("Sigmoid", [gate], part="sigmoid")
    return op.layer("Eltwise", [one, gate], eltwise_param={"operation": "PROD"})


def log_sigmoid(op: Operation) -> Value:
    """log_sigmoid: BNLL between Powers."""
    return activations.log_sigmoid(op, op.blob())


def celu(op: Operation) -> Value:
    """celu: ELU, between Powers unless alpha is 1."""
    return activations.celu(op, op.blob(), op["alpha"])


def threshold(op: Operation) -> Value:
    """threshold: Threshold, Eltwise PROD; with another number than 0 also Power and Eltwise."""
    return activations.thresholded(op, op.blob(), op["threshold"], op["value"])


def softplus(op: Operation) -> Value:
    """softplus: BNLL."""
    if op["beta"] != 1:
        op.refuse("BNLL is a softplus with beta 1 only")
    if op["threshold"] < _SOFTPLUS_THRESHOLD:
        op.refuse(f"it is a line from {op['threshold']} on; BNLL is none")
    return op.layer("BNLL", [op.blob()])


def softmax(op: Operation) -> Value:
    """softmax: Softmax."""
    x = op.blob()
    y = activations.softmax(op, x, op["dim"])
    return replace(y, stands_in=True) if x.stands_in else y


def log_softmax(op: Operation) -> Value:
    """log_softmax: Softmax, Log."""
    return activations.log_softmax(op, op.blob(), op["dim"])


def power(exponent: float) -> Callable[[Operation], Value]:
    """Return the function of an operator that raises to that power."""
    return _plain("Power", power_param={"power": exponent})


def pow_(op: Operation) -> Value:
    """pow: Power."""
    exponent = op["exponent"]
    if not isinstance(exponent, (int, float)):
        op.refuse("its exponent is a tensor; Power's is a number")
    return op.layer("Power", [op.blob()], power_param={"power": exponent})


def _refuse_training(op: Operation) -> None:
    if op["train"]:
        op.refuse("it was exported in training mode", "call model.eval() before torch.export")


def dropout(op: Operation) -> Value:
    """dropout: Dropout."""
    _refuse_training(op)
    x = op.blob()
    if not op["p"]:
        return x
    return replace(op.layer("Dropout", [x], dropout_param={"dropout_ratio": op["p"]}), stands_in=x.stands_in)


def other_dropout(op: Operation) -> Result:
    """feature_dropout, alpha_dropout, feature_alpha_dropout: nothing, in evaluation mode."""
    _refuse_training(op)
    return unchanged(op)


def dropouts_left_out(nodes: Iterable[Node]) -> list[Node]:
    """Return the nodes that become nothing, though they drop values in training."""
    return [node for node in nodes if OPERATORS.get(operator_name(node)) is other_dropout and arguments_of(node)["p"]]


def unchanged(op: Operation) -> Result:
    """Return the input of what changes no value in evaluation mode."""
    given, made = (node.meta["val"].dtype for node in (op.node.all_input_nodes[0], op.node))
    both_float = given.is_floating_point and made.is_floating_point
    if made != given and not both_float and not holds_whole_numbers(op.node):
        op.refuse("it makes numbers of another type; blobs hold floats, and integers for Embed and EmbeddingBag")
    value: Result = op[next(iter(op.arguments))]
    return value


def detached(op: Operation) -> Result:
    """Return the input, where no gradient would flow through it anyway."""
    value = unchanged(op)
    if is_counted(op.node):
        return value
    learns = value.trained if isinstance(value, Constant) else True
    if learns and any(user.op != "output" for user in op.node.users):
        op.refuse("no gradient flows through it, which no layer can say", "leave it out of a net that is not trained")
    return value


OPERATORS: Mapping[str, Callable[[Operation], Result]] = {
    "relu": _plain("ReLU"),
    "relu6": _plain("ReLU6"),
    "hardtanh": hardtanh,
    "clamp": clamp,
    "clamp_min": clamp,
    "clamp_max": clamp,
    "clip": clamp,
    "leaky_relu": leaky_relu,
    "elu": elu,
    "selu": selu,
    "mish": mish,
    "gelu": gelu,
    "glu": glu,
    "sigmoid": _plain("Sigmoid"),
    "hardsigmoid": _plain("HardSigmoid"),
    "tanh": _plain("TanH"),
    "silu": _plain("Swish"),
    "hardswish": _plain("HardSwish"),
    "log_sigmoid": log_sigmoid,
    "celu": celu,
    "threshold": threshold,
    "softplus": softplus,
    "softmax": softmax,
    "log_softmax": log_softmax,
    "abs": _plain("AbsVal"),
    "exp": _plain("Exp"),
    "log": _plain("Log"),
    "neg": _plain("Power", power_param={"scale": -1}),
    "sqrt": power(0.5),
    "rsqrt": power(-0.5),
    "square": power(2),
    "reciprocal": power(-1),
    "pow": pow_,
    "dropout": dropout,
    "feature_dropout": other_dropout,
    "alpha_dropout": other_dropout,
    "feature_alpha_dropout": other_dropout,
    "contiguous": unchanged,
    "clone": unchanged,
    "detach": detached,
    "alias": unchanged,
    "to": unchanged,
    "_to_copy": unchanged,
    "lift_fresh_copy": unchanged,
}
