"""Functions of one value: how each is written in PyTorch."""

from __future__ import annotations

import numpy as np

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
from mgcaffe.tools.convert.importing.activations import LARGEST
from mgcaffe.tools.convert.torch_out.emitter import Blob, Emitter, Operator, call, number, powered


def linear(x: str, scale: float, shift: float) -> str:
    """Return shift + scale x, without what would do nothing."""
    product = x if abs(scale) == 1 else f"{number(abs(scale))} * {x}"
    if shift == 0:
        return product if scale >= 0 else f"-{product}"
    return f"{number(shift)} {'+' if scale >= 0 else '-'} {product}"


def relu(e: Emitter, layer: ReLU) -> list[str]:
    """F.relu, or F.leaky_relu with a negative_slope."""
    return [_rectified(e, layer.slope)]


def _rectified(e: Emitter, slope: float) -> str:
    return call("F.leaky_relu", e.x, number(slope)) if slope else call("F.relu", e.x)


def relu6(e: Emitter, layer: ReLU6) -> list[str]:
    """F.relu6; with a negative_slope F.leaky_relu and clamp."""
    if not layer.slope:
        return [call("F.relu6", e.x)]
    return [f"{_rectified(e, layer.slope)}.clamp(max={number(HIGHEST)})"]


def prelu(e: Emitter, layer: PReLU) -> list[str]:
    """nn.PReLU."""
    shape = layer.parameters[0].shape or (1,)
    constructor = f"nn.PReLU({shape[0] if shape != (1,) else ''})"
    return [f"{e.whole_attribute(constructor, {'weight': Blob(0, shape)})}({e.x})"]


def elu(e: Emitter, layer: ELU) -> list[str]:
    """F.elu."""
    return [call("F.elu", e.x, alpha=(number(layer.alpha), "1"))]


def swish(e: Emitter, layer: Swish) -> list[str]:
    """F.silu; with a beta x times torch.sigmoid of beta x."""
    if layer.beta == 1:
        return [call("F.silu", e.x)]
    return [f"{e.x} * torch.sigmoid({linear(e.x, layer.beta, 0)})"]


def hard_sigmoid(e: Emitter, layer: HardSigmoid) -> list[str]:
    """F.hardsigmoid; a linear function and clamp where alpha or beta are not PyTorch's."""
    if layer.alpha == np.float32(1 / 6) and layer.beta == 0.5:
        return [call("F.hardsigmoid", e.x)]
    return [f"({linear(e.x, layer.alpha, layer.beta)}).clamp(0, 1)"]


def gelu(e: Emitter, layer: GELU) -> list[str]:
    """F.gelu."""
    return [call("F.gelu", e.x, approximate=(f'"{layer.approximate}"', '"none"'))]


def clip(e: Emitter, layer: Clip) -> list[str]:
    """Tensor.clamp, without a bound that is the largest float32: importers write so where there is none."""
    if layer.low <= -LARGEST < layer.high < LARGEST:
        return [f"{e.x}.clamp(max={number(layer.high)})"]
    if -LARGEST < layer.low < LARGEST <= layer.high:
        return [f"{e.x}.clamp(min={number(layer.low)})"]
    return [f"{e.x}.clamp({number(layer.low)}, {number(layer.high)})"]


def threshold(e: Emitter, layer: Threshold) -> list[str]:
    """Comparison, as a number."""
    return [f"({e.x} > {number(layer.param.threshold_param.threshold)}).to({e.x}.dtype)"]


def power(e: Emitter, layer: Power) -> list[str]:
    """Power by the formula, as far as it does anything; torch.full_like of the shift where power times scale is 0."""
    y = call("torch.full_like", e.x, number(layer.shift)) if layer.constant else linear(e.x, layer.scale, layer.shift)
    if layer.power == 1:
        return [y]
    return [powered(y, number(layer.power))]


def exp(e: Emitter, layer: Exp) -> list[str]:
    """torch.exp of a linear function, or a power of the base."""
    param = layer.param.exp_param
    y = linear(e.x, param.scale, param.shift)
    if param.base == -1:
        return [call("torch.exp", y)]
    return [powered(number(param.base), y)]


def log(e: Emitter, layer: Log) -> list[str]:
    """torch.log of a linear function (torch.log2, torch.log10), over the logarithm of another base."""
    base = layer.param.log_param.base
    y = linear(e.x, layer.scale, layer.shift)
    if base in (2, 10):
        return [call(f"torch.log{number(base)}", y)]
    if base == -1:
        return [call("torch.log", y)]
    e.need_import("math")
    return [f"torch.log({y}) / math.log({number(base)})"]


def dropout(e: Emitter, layer: Dropout) -> list[str]:
    """nn.Dropout, which does nothing in evaluation mode."""
    if layer.active:
        e.refuse("it drops values at random also in a test, since its own phase is TRAIN", "phase")
    if layer.factor != 1:
        e.refuse("scale_train: false has tests scale its values down", "dropout_param.scale_train")
    return [f"{e.attribute(f'nn.Dropout({number(layer.ratio)})')}({e.x})"]


def plain(layer_type: str, form: str, becomes: str = "") -> Operator:
    """Return the entry of a type that is one expression of x."""

    def write(e: Emitter, layer: Layer) -> list[str]:
        return [form.format(x=e.x)]

    return Operator(layer_type, write, becomes or form.partition("(")[0])


OPERATORS = (
    Operator("ReLU", relu, "F.relu, F.leaky_relu"),
    Operator("ReLU6", relu6, "F.relu6, F.leaky_relu"),
    Operator("PReLU", prelu, "nn.PReLU"),
    Operator("ELU", elu, "F.elu"),
    plain("Sigmoid", "torch.sigmoid({x})"),
    plain("TanH", "torch.tanh({x})"),
    Operator("Swish", swish, "F.silu, torch.sigmoid"),
    plain("HardSwish", "F.hardswish({x})"),
    Operator("HardSigmoid", hard_sigmoid, "F.hardsigmoid"),
    Operator("GELU", gelu, "F.gelu"),
    plain("BNLL", "F.softplus({x})"),
    plain("AbsVal", "torch.abs({x})"),
    Operator("Clip", clip, ""),
    Operator("Threshold", threshold, ""),
    Operator("Power", power, "torch.full_like"),
    Operator("Exp", exp, "torch.exp"),
    Operator("Log", log, "torch.log, torch.log2, torch.log10, math.log"),
    Operator(
        "Dropout",
        dropout,
        "nn.Dropout",
        {
            "phase: TRAIN": "at the layer: values drop at random",
            "scale_train": "false",
            "sample_weights_test": "as in training",
        },
    ),
)
