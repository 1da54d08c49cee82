"""Layers that compute every value from one, where they depend on numbers of the operator."""

from __future__ import annotations

from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.values import Constant, Value

LARGEST = 3.4028234663852886e38
"""The largest float32, for an interval of Clip that is open."""


def clipped(op: Operation, x: Value, low: float | None, high: float | None) -> Value:
    """Limit values to an interval that may be open: ReLU or ReLU6 where they are that, else Clip."""
    low, high = -LARGEST if low is None else low, LARGEST if high is None else high
    if low > high:
        op.refuse(f"its interval is empty: {low:g} to {high:g}")
    if low == 0 and high == 6:
        return op.layer("ReLU6", [x])
    if low == 0 and high == LARGEST:
        return op.layer("ReLU", [x])
    return op.layer("Clip", [x], clip_param={"min": low, "max": high})


def softmax(op: Operation, x: Value, axis: int) -> Value:
    """Add a Softmax."""
    return op.layer("Softmax", [x], softmax_param=_axis(x, axis))


def log_softmax(op: Operation, x: Value, axis: int) -> Value:
    """Add a Softmax and a Log."""
    y = op.layer("Softmax", [x], part="softmax", softmax_param=_axis(x, axis))
    return op.layer("Log", [y], part="log")


def _axis(x: Value, axis: int) -> dict[str, int]:
    axis %= len(x.shape)
    return {"axis": axis} if axis != 1 else {}


def prelu(op: Operation, x: Value, slope: Constant) -> Value:
    """Add a PReLU with one slope for all channels, or one each."""
    shared = slope.tensor.numel() == 1
    blob = Constant(slope.tensor.reshape(()) if shared else slope.tensor, slope.name, slope.trained)
    return op.layer("PReLU", [x], blobs=[blob], prelu_param={"channel_shared": True} if shared else {})


def selu(op: Operation, x: Value, *, alpha: float, gamma: float) -> Value:
    """Add an ELU and a Power."""
    y = op.layer("ELU", [x], part="elu", elu_param={"alpha": alpha})
    return op.layer("Power", [y], power_param={"scale": gamma})


def mish(op: Operation, x: Value) -> Value:
    """Add x tanh(softplus(x)): BNLL, TanH, Eltwise PROD."""
    y = op.layer("TanH", [op.layer("BNLL", [x], part="softplus")], part="tanh")
    return op.layer("Eltwise", [x, y], eltwise_param={"operation": "PROD"})


def log_sigmoid(op: Operation, x: Value) -> Value:
    """Add -softplus(-x): BNLL between Powers."""
    negated = op.layer("Power", [x], part="negated", power_param={"scale": -1})
    return op.layer("Power", [op.layer("BNLL", [negated], part="softplus")], power_param={"scale": -1})


def celu(op: Operation, x: Value, alpha: float) -> Value:
    """Add alpha elu(x / alpha): ELU, between Powers unless alpha is 1."""
    if not alpha > 0:
        op.refuse(f"its alpha is {alpha:g}; ELU between Powers computes those above 0")
    if alpha == 1:
        return op.layer("ELU", [x])
    divided = op.layer("Power", [x], part="divided", power_param={"scale": 1 / alpha})
    return op.layer("Power", [op.layer("ELU", [divided], part="elu")], power_param={"scale": alpha})


def softsign(op: Operation, x: Value) -> Value:
    """Add x / (1 + |x|): AbsVal, Power, Eltwise PROD."""
    absolute = op.layer("AbsVal", [x], part="absolute")
    factor = op.layer("Power", [absolute], part="factor", power_param={"power": -1, "shift": 1})
    return op.layer("Eltwise", [x, factor], eltwise_param={"operation": "PROD"})


def thresholded(op: Operation, x: Value, limit: float, number: float) -> Value:
    """Put a number where x is not above a limit: Threshold and Eltwise PROD, with Power and Eltwise for the number."""
    flags = op.layer("Threshold", [x], part="above", threshold_param={"threshold": limit}, propagate_down=[False])
    param = {"operation": "PROD"}
    y = op.layer("Eltwise", [x, flags], part="kept" if number else "", eltwise_param=param)
    if not number:
        return y
    numbers = op.layer("Power", [flags], part="numbers", power_param={"scale": -number, "shift": number})
    return op.layer("Eltwise", [y, numbers])
