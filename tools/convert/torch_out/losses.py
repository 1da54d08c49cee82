"""Losses and metrics of a net with labels: how each is written in PyTorch.

A label that is no class, which our engine refuses, is not looked for by what is written here.
"""

from __future__ import annotations

from mgcaffe.engine.layers.accuracy import Accuracy
from mgcaffe.engine.layers.contrastive_loss import ContrastiveLoss
from mgcaffe.engine.layers.euclidean_loss import EuclideanLoss
from mgcaffe.engine.layers.hinge_loss import L1, HingeLoss
from mgcaffe.engine.layers.infogain_loss import InfogainLoss
from mgcaffe.engine.layers.multinomial_logistic_loss import MultinomialLogisticLoss
from mgcaffe.engine.layers.shared.loss import BATCH_SIZE, FULL, NONE, VALID, NormalizedLoss
from mgcaffe.engine.layers.sigmoid_cross_entropy_loss import SigmoidCrossEntropyLoss
from mgcaffe.engine.layers.smooth_l1_loss import SmoothL1Loss
from mgcaffe.engine.layers.softmax_with_loss import SoftmaxWithLoss
from mgcaffe.tools.convert.layer_writer import WEIGHTS_OF_CLASSES
from mgcaffe.tools.convert.torch_out.emitter import Emitter, Operator, call, number

_NORMALIZATIONS = {VALID: "valid", FULL: "full", BATCH_SIZE: "batch_size", NONE: "none"}


def _fields(layer: NormalizedLoss) -> dict[str, tuple[str, str]]:
    default = _NORMALIZATIONS[layer.default_normalization]
    return {
        "ignore_index": (str(layer.ignore_label), "None"),
        "normalization": (f'"{_NORMALIZATIONS[layer.normalization]}"', f'"{default}"'),
    }


def softmax_with_loss(e: Emitter, layer: SoftmaxWithLoss) -> list[str]:
    """`softmax_with_loss`, around F.log_softmax, with Caffe's divisors; the second top is torch.softmax."""
    smoothing = (number(layer.smoothing), "0")
    fields = {"dim": (str(layer.axis), "1"), **_fields(layer), "label_smoothing": smoothing}
    loss = call(e.helper("softmax_with_loss"), *e.bottoms, **fields)
    return [loss, call("torch.softmax", e.x, str(layer.axis))][: e.top_count]


def infogain_loss(e: Emitter, layer: InfogainLoss) -> list[str]:
    """`infogain_loss`, around F.log_softmax, with H, a bottom or a buffer; the second top is torch.softmax."""
    matrix = e.bottoms[2] if layer.matrix is None else e.buffer("matrix", layer.matrix)
    dim = (str(layer.axis), "1")
    loss = call(e.helper("infogain_loss"), *e.bottoms[:2], matrix, dim=dim, **_fields(layer))
    return [loss, call("torch.softmax", e.x, str(layer.axis))][: e.top_count]


def multinomial_logistic_loss(e: Emitter, layer: MultinomialLogisticLoss) -> list[str]:
    """`multinomial_logistic_loss`, which picks the labels' probabilities."""
    return [call(e.helper("multinomial_logistic_loss"), *e.bottoms)]


def sigmoid_cross_entropy_loss(e: Emitter, layer: SigmoidCrossEntropyLoss) -> list[str]:
    """`sigmoid_loss`, around F.binary_cross_entropy_with_logits, with Caffe's divisors."""
    return [call(e.helper("sigmoid_loss"), *e.bottoms, **_fields(layer))]


def euclidean_loss(e: Emitter, layer: EuclideanLoss) -> list[str]:
    """F.mse_loss, its sum over 2 N."""
    first, second = e.bottom_shapes
    other = e.bottoms[1] if first == second else f"{e.bottoms[1]}.reshape({e.x}.shape)"
    loss = call("F.mse_loss", e.x, other, reduction=('"sum"', ""))
    return [f"{loss} / (2 * max(1, len({e.x})))"]


def smooth_l1_loss(e: Emitter, layer: SmoothL1Loss) -> list[str]:
    """F.smooth_l1_loss, its sum over N, with the weights that are bottoms."""
    first, second, *weights = e.bottoms
    if weights:
        first, second = f"{weights[0]} * {first}", f"{weights[0]} * {second}"
    how = '"none"' if len(weights) > 1 else '"sum"'
    beta = number(1 / layer.sharpness)
    loss = call("F.smooth_l1_loss", first, second, reduction=(how, ""), beta=(beta, "1"))
    if len(weights) > 1:
        loss = f"({weights[1]} * {loss}).sum()"
    return [f"{loss} / max(1, len({e.x}))"]


def hinge_loss(e: Emitter, layer: HingeLoss) -> list[str]:
    """`hinge_loss`, the formula."""
    norm = ("1" if layer.param.hinge_loss_param.norm == L1 else "2", "1")
    return [call(e.helper("hinge_loss"), *e.bottoms, norm=norm)]


def contrastive_loss(e: Emitter, layer: ContrastiveLoss) -> list[str]:
    """`contrastive_loss`, the formula with Caffe's gradient."""
    legacy, (first, second) = (str(layer.legacy), "False"), layer.shapes
    # Pairs of single values, or members of unlike shapes, as rows.
    rows = "" if first == second and len(first) > 1 else ".unsqueeze(-1).flatten(1)"
    members = [f"{member}{rows}" for member in e.bottoms[:2]]
    return [call(e.helper("contrastive_loss"), *members, e.bottoms[2], number(layer.margin), legacy=legacy)]


def accuracy(e: Emitter, layer: Accuracy) -> list[str]:
    """`accuracy`, which counts the classes whose scores are below the label's; `class_accuracy` for the second top."""
    param = layer.param.accuracy_param
    ignored = param.ignore_label if param.HasField("ignore_label") else None
    fields = {
        "top_k": (str(layer.top_k), "1"),
        "dim": (str(layer.axis), "1"),
        "ignore_index": (str(ignored), "None"),
    }
    helpers = ("accuracy", "class_accuracy")[: e.top_count]
    return [call(e.helper(helper), *e.bottoms, **fields) for helper in helpers]


OPERATORS = (
    Operator("SoftmaxWithLoss", softmax_with_loss, "softmax_with_loss, torch.softmax", WEIGHTS_OF_CLASSES),
    Operator(
        "InfogainLoss",
        infogain_loss,
        "infogain_loss, torch.softmax",
        {"normalize": "as in Caffe", **WEIGHTS_OF_CLASSES},
    ),
    Operator("MultinomialLogisticLoss", multinomial_logistic_loss, "multinomial_logistic_loss"),
    Operator("SigmoidCrossEntropyLoss", sigmoid_cross_entropy_loss, "sigmoid_loss", WEIGHTS_OF_CLASSES),
    Operator("EuclideanLoss", euclidean_loss, "F.mse_loss"),
    Operator("SmoothL1Loss", smooth_l1_loss, "F.smooth_l1_loss"),
    Operator("HingeLoss", hinge_loss, "hinge_loss"),
    Operator("ContrastiveLoss", contrastive_loss, "contrastive_loss"),
    Operator("Accuracy", accuracy, "accuracy, class_accuracy"),
)
