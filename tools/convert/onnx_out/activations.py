"""Functions of one value: how each is written in ONNX."""

from __future__ import annotations

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.clip import Clip
from mgcaffe.engine.layers.dropout import Dropout
from mgcaffe.engine.layers.elu import ELU
from mgcaffe.engine.layers.exp import Exp
from mgcaffe.engine.layers.gelu import GELU
from mgcaffe.engine.layers.hard_sigmoid import HardSigmoid
from mgcaffe.engine.layers.log import Log
from mgcaffe.engine.layers.power import Power
from mgcaffe.engine.layers.prelu import PReLU
from mgcaffe.engine.layers.relu import ReLU
from mgcaffe.engine.layers.relu6 import HIGHEST, ReLU6
from mgcaffe.engine.layers.swish import Swish
from mgcaffe.engine.layers.threshold import Threshold
from mgcaffe.tools.convert.onnx_out.emitter import Emitter, Operator


def relu(e: Emitter, layer: ReLU) -> list[str]:
    """Relu, or LeakyRelu with a negative_slope."""
    return [_rectified(e, layer.slope)]


def _rectified(e: Emitter, slope: float) -> str:
    return e.node("LeakyRelu", e.x, alpha=slope) if slope else e.node("Relu", e.x)


def relu6(e: Emitter, layer: ReLU6) -> list[str]:
    """Clip to 0 and 6; with a negative_slope LeakyRelu, then Clip to 6."""
    if not layer.slope:
        return [e.node("Clip", e.x, e.floats(0), e.floats(HIGHEST))]
    return [e.node("Clip", _rectified(e, layer.slope), "", e.floats(HIGHEST))]


def prelu(e: Emitter, layer: PReLU) -> list[str]:
    """PRelu; the slopes get the axes behind the channels."""
    slopes = layer.parameters[0].shape
    shape = (*slopes, *[1] * (len(e.bottom_shapes[0]) - 2)) if slopes else (1,)
    return [e.node("PRelu", e.x, e.weight(0, shape))]


def elu(e: Emitter, layer: ELU) -> list[str]:
    """Elu."""
    return [e.node("Elu", e.x, alpha=layer.alpha)]


def swish(e: Emitter, layer: Swish) -> list[str]:
    """Sigmoid of beta x, and Mul by x."""
    return [e.node("Mul", e.x, e.node("Sigmoid", e.scaled(e.x, layer.beta)))]


def hard_sigmoid(e: Emitter, layer: HardSigmoid) -> list[str]:
    """HardSigmoid with the layer's own alpha and beta: ONNX's defaults are others."""
    return [e.node("HardSigmoid", e.x, alpha=layer.alpha, beta=layer.beta)]


def gelu(e: Emitter, layer: GELU) -> list[str]:
    """Gelu."""
    return [e.node("Gelu", e.x, approximate=layer.approximate)]


def clip(e: Emitter, layer: Clip) -> list[str]:
    """Clip."""
    return [e.node("Clip", e.x, e.floats(layer.low), e.floats(layer.high))]


def threshold(e: Emitter, layer: Threshold) -> list[str]:
    """Greater, as a number."""
    return [e.to_floats(e.node("Greater", e.x, e.floats(layer.param.threshold_param.threshold)))]


def power(e: Emitter, layer: Power) -> list[str]:
    """Mul, Add and Pow, as far as they do anything; a constant where power times scale is 0."""
    if layer.constant:
        return [e.node("Expand", e.floats(layer.constant_value), e.node("Shape", e.x))]
    y = e.scaled(e.x, layer.scale, layer.shift)
    return [y if layer.power == 1 else e.node("Pow", y, e.floats(layer.power))]


def exp(e: Emitter, layer: Exp) -> list[str]:
    """Exp of a linear function; the base is one more factor in it."""
    return [e.node("Exp", e.scaled(e.x, layer.scale, layer.shift))]


def log(e: Emitter, layer: Log) -> list[str]:
    """Log of a linear function, over the logarithm of the base."""
    return [e.scaled(e.node("Log", e.scaled(e.x, layer.scale, layer.shift)), layer.factor)]


def dropout(e: Emitter, layer: Dropout) -> list[str]:
    """Dropout with its ratio, not in training mode: nothing is dropped."""
    if layer.active:
        e.refuse("it drops values at random also in a test, since its own phase is TRAIN", "phase")
    if layer.factor != 1:
        e.refuse("scale_train: false has tests scale its values down", "dropout_param.scale_train")
    if layer.ratio >= 1:
        e.refuse("ONNX's Dropout has ratios below 1", "dropout_param.dropout_ratio")
    return [e.node("Dropout", e.x, e.floats(layer.ratio))]


def plain(layer_type: str, operator: str) -> Operator:
    """Return the entry of a type that is one operator without attributes."""

    def write(e: Emitter, layer: Layer) -> list[str]:
        return [e.node(operator, e.x)]

    return Operator(layer_type, write, operator, any_batch=True)


OPERATORS = (
    Operator("ReLU", relu, "Relu, LeakyRelu", any_batch=True),
    Operator("ReLU6", relu6, "Clip, LeakyRelu", any_batch=True),
    Operator("PReLU", prelu, "PRelu", any_batch=True),
    Operator("ELU", elu, "Elu", any_batch=True),
    plain("Sigmoid", "Sigmoid"),
    plain("TanH", "Tanh"),
    Operator("Swish", swish, "Sigmoid, Mul", any_batch=True),
    plain("HardSwish", "HardSwish"),
    Operator("HardSigmoid", hard_sigmoid, "HardSigmoid", any_batch=True),
    Operator("GELU", gelu, "Gelu", any_batch=True),
    plain("BNLL", "Softplus"),
    plain("AbsVal", "Abs"),
    Operator("Clip", clip, "Clip", any_batch=True),
    Operator("Threshold", threshold, "Greater, Cast", any_batch=True),
    Operator("Power", power, "Mul, Add, Pow, Shape, Expand, Identity", any_batch=True),
    Operator("Exp", exp, "Mul, Add, Exp", any_batch=True),
    Operator("Log", log, "Mul, Add, Log", any_batch=True),
    Operator(
        "Dropout",
        dropout,
        "Dropout",
        {
            "phase: TRAIN": "at the layer: values drop at random",
            "scale_train": "false",
            "dropout_ratio: 1": "which ONNX's Dropout does not take",
            "sample_weights_test": "as in training",
        },
        any_batch=True,
    ),
)
