"""Losses and metrics of a net with labels, as in its TEST phase: how each is written in ONNX.

A label that is no class, which our engine refuses, is not looked for by what is written here.
"""

from __future__ import annotations

import math

import numpy as np

from mgcaffe.engine.layers.accuracy import Accuracy
from mgcaffe.engine.layers.contrastive_loss import ContrastiveLoss
from mgcaffe.engine.layers.euclidean_loss import EuclideanLoss
from mgcaffe.engine.layers.hinge_loss import L1, HingeLoss
from mgcaffe.engine.layers.infogain_loss import InfogainLoss
from mgcaffe.engine.layers.multinomial_logistic_loss import MIN_PROBABILITY, MultinomialLogisticLoss
from mgcaffe.engine.layers.shared.loss import VALID, NormalizedLoss
from mgcaffe.engine.layers.sigmoid_cross_entropy_loss import SigmoidCrossEntropyLoss
from mgcaffe.engine.layers.smooth_l1_loss import SmoothL1Loss
from mgcaffe.engine.layers.softmax_with_loss import TINY, SoftmaxWithLoss
from mgcaffe.tools.convert.layer_writer import WEIGHTS_OF_CLASSES
from mgcaffe.tools.convert.onnx_out.emitter import Emitter, Operator


def _total(e: Emitter, x: str) -> str:
    """Return the sum of all values, without axes."""
    return e.node("ReduceSum", x, keepdims=0)


def _classes(e: Emitter, axis: int, ignore: int | None) -> tuple[str, str | None]:
    """Return labels as class numbers, of size 1 along `axis` (0 where ignored), and which of them count, or None."""
    shape = list(e.bottom_shapes[0])
    shape[axis] = 1
    labels = e.reshape(e.to_integers(e.bottoms[1]), shape)
    if ignore is None:
        return labels, None
    valid = e.node("Not", e.node("Equal", labels, e.integers(ignore)))
    return e.node("Where", valid, labels, e.integers(0)), e.to_floats(valid)


def _at_least(e: Emitter, x: str, least: float) -> str:
    return e.node("Max", x, e.floats(least))


def _divided(e: Emitter, layer: NormalizedLoss, total: str, outer: int, inner: int, valid: str | None) -> str:
    """Return a sum over Z."""
    if layer.normalization == VALID and valid is not None:
        return e.node("Div", total, _at_least(e, _total(e, valid), 1))
    return e.scaled(total, 1 / layer.divisor(outer, inner, None))


def _positions(e: Emitter, axis: int) -> tuple[int, int]:
    """Return how many positions there are before the classes' axis and behind it."""
    shape = e.bottom_shapes[0]
    return math.prod(shape[:axis]), math.prod(shape[axis + 1 :])


def softmax_with_loss(e: Emitter, layer: SoftmaxWithLoss) -> list[str]:
    """Softmax, Log of the labels' probabilities (GatherElements), ReduceSum and the division."""
    axis = layer.axis
    classes, valid = _classes(e, axis, layer.ignore_label)
    probabilities = e.node("Softmax", e.x, axis=axis)
    logarithms = e.node("Log", _at_least(e, e.node("GatherElements", probabilities, classes, axis=axis), TINY))
    if layer.smoothing:
        of_all = e.sums(e.node("Log", _at_least(e, probabilities, TINY)), [axis], operator="ReduceMean")
        parts = e.scaled(logarithms, 1 - layer.smoothing), e.scaled(of_all, layer.smoothing)
        logarithms = e.node("Add", *parts)
    if valid is not None:
        logarithms = e.node("Mul", logarithms, valid)
    loss = _divided(e, layer, e.scaled(_total(e, logarithms), -1), *_positions(e, axis), valid)
    return [loss, probabilities][: e.top_count]


def infogain_loss(e: Emitter, layer: InfogainLoss) -> list[str]:
    """Softmax and Log, times the labels' rows of H (Gather), ReduceSum and the division."""
    axis, size = layer.axis, layer.classes
    classes, valid = _classes(e, axis, layer.ignore_label)
    probabilities = e.node("Softmax", e.x, axis=axis)
    logarithms = e.node("Log", _at_least(e, probabilities, MIN_PROBABILITY))
    matrix = e.reshape(e.bottoms[2], (size, size)) if layer.matrix is None else e.floats(layer.matrix.cpu().numpy())
    if layer.matrix is not None:
        matrix = e.reshape(matrix, (size, size))
    # The rows' classes become the last axis, and move to where the scores have theirs.
    rows = e.node("Gather", matrix, e.node("Squeeze", classes, e.integers(axis)), axis=0)
    rank = len(e.bottom_shapes[0])
    order = [*range(axis), rank - 1, *range(axis, rank - 1)]
    products = e.node("Mul", logarithms, e.node("Transpose", rows, perm=order))
    if valid is not None:
        products = e.node("Mul", products, valid)
    loss = _divided(e, layer, e.scaled(_total(e, products), -1), *_positions(e, axis), valid)
    return [loss, probabilities][: e.top_count]


def multinomial_logistic_loss(e: Emitter, layer: MultinomialLogisticLoss) -> list[str]:
    """Log of the labels' probabilities (GatherElements), ReduceSum and the division."""
    classes = e.reshape(e.to_integers(e.bottoms[1]), (layer.rows[0], 1))
    chosen = e.node("GatherElements", e.reshape(e.x, layer.rows), classes, axis=1)
    total = _total(e, e.node("Log", _at_least(e, chosen, MIN_PROBABILITY)))
    return [e.scaled(total, -1 / max(1, layer.rows[0]))]


def sigmoid_cross_entropy_loss(e: Emitter, layer: SigmoidCrossEntropyLoss) -> list[str]:
    """Softplus of x minus x times the target, ReduceSum and the division."""
    shape, targets = e.bottom_shapes[0], e.bottoms[1]
    if e.bottom_shapes[1] != shape:
        targets = e.reshape(targets, shape)
    losses = e.node("Sub", e.node("Softplus", e.x), e.node("Mul", e.x, targets))
    valid = None
    if layer.ignore_label is not None:
        ignored = e.node("Equal", e.to_integers(targets), e.integers(layer.ignore_label))
        valid = e.to_floats(e.node("Not", ignored))
        losses = e.node("Mul", losses, valid)
    return [_divided(e, layer, _total(e, losses), shape[0], math.prod(shape[1:]), valid)]


def euclidean_loss(e: Emitter, layer: EuclideanLoss) -> list[str]:
    """ReduceSumSquare of the difference, over 2 N."""
    first, second = e.bottom_shapes
    other = e.bottoms[1] if first == second else e.reshape(e.bottoms[1], first)
    total = e.node("ReduceSumSquare", e.node("Sub", e.x, other), keepdims=0)
    return [e.scaled(total, 1 / (2 * max(1, first[0])))]


def smooth_l1_loss(e: Emitter, layer: SmoothL1Loss) -> list[str]:
    """Where of the two formulas, by Less; ReduceSum over N."""
    difference = e.node("Sub", e.x, e.bottoms[1])
    if len(e.bottoms) > 2:
        difference = e.node("Mul", difference, e.bottoms[2])
    size, sharpness = e.node("Abs", difference), layer.sharpness
    square = e.scaled(e.node("Mul", difference, difference), sharpness / 2)
    small = e.node("Less", size, e.floats(1 / sharpness))
    errors = e.node("Where", small, square, e.scaled(size, 1, -0.5 / sharpness))
    if len(e.bottoms) > 3:
        errors = e.node("Mul", errors, e.bottoms[3])
    return [e.scaled(_total(e, errors), 1 / layer.count)]


def hinge_loss(e: Emitter, layer: HingeLoss) -> list[str]:
    """Relu of 1 minus the side (OneHot: 1 or -1) times x; ReduceSum, or of the squares, over N."""
    labels = e.reshape(e.to_integers(e.bottoms[1]), (layer.rows[0],))
    side = e.node("OneHot", labels, e.integers(layer.rows[1]), e.floats([-1, 1]), axis=-1)
    short = e.node("Relu", e.node("Sub", e.floats(1), e.node("Mul", side, e.reshape(e.x, layer.rows))))
    by_norm = "ReduceSum" if layer.param.hinge_loss_param.norm == L1 else "ReduceSumSquare"
    return [e.scaled(e.node(by_norm, short, keepdims=0), 1 / max(1, layer.rows[0]))]


def contrastive_loss(e: Emitter, layer: ContrastiveLoss) -> list[str]:
    """Where of the squared distance and, for pairs that are not similar, the gap to the margin; ReduceSum over 2 N."""
    first, second = e.bottom_shapes[:2]
    pairs, other = first[0], e.bottoms[1] if first == second else e.reshape(e.bottoms[1], first)
    difference = e.node("Flatten", e.node("Sub", e.x, other), axis=1)
    square = e.sums(difference, [1], keep=False, operator="ReduceSumSquare")
    distance = square if layer.legacy else e.node("Sqrt", square)
    gap = e.node("Relu", e.node("Sub", e.floats(layer.margin), distance))
    apart = gap if layer.legacy else e.node("Mul", gap, gap)
    differs = e.node("Equal", e.reshape(e.to_integers(e.bottoms[2]), (pairs,)), e.integers(0))
    return [e.scaled(_total(e, e.node("Where", differs, apart, square)), 1 / (2 * max(1, pairs)))]


def accuracy(e: Emitter, layer: Accuracy) -> list[str]:
    """How many other classes' scores reach the label's (GatherElements, Less, ReduceSum) against top_k; the mean."""
    param, axis = layer.param.accuracy_param, layer.axis
    classes, valid = _classes(e, axis, param.ignore_label if param.HasField("ignore_label") else None)
    own = e.node("GatherElements", e.x, classes, axis=axis)
    lower = e.sums(e.to_floats(e.node("Less", e.x, own)), [axis])
    # Half a class less, so that counts held as floats compare safely.
    right = e.to_floats(e.node("Greater", lower, e.floats(layer.classes - layer.top_k - 0.5)))
    if valid is None:
        valid = e.to_floats(e.node("Equal", classes, classes))
    else:
        right = e.node("Mul", right, valid)
    tops = [e.node("Div", _total(e, right), _at_least(e, _total(e, valid), 1))]
    if e.top_count > 1:
        tops.append(_by_class(e, layer, classes, right, valid))
    return tops


def _by_class(e: Emitter, layer: Accuracy, classes: str, right: str, counted: str) -> str:
    """Return the share of right positions for every class."""
    numbers = np.arange(layer.classes).reshape(-1, 1)
    member = e.to_floats(e.node("Equal", e.reshape(classes, (1, -1)), e.reshape(e.integers(*numbers.flat), (-1, 1))))
    sums = [
        e.sums(e.node("Mul", member, e.reshape(values, (1, -1))), [1], keep=False) for values in (right, counted)
    ]  # fmt: skip
    return e.node("Div", sums[0], _at_least(e, sums[1], 1))


_LABELS = "Cast, Reshape, Equal, Not, Where"

OPERATORS = (
    Operator(
        "SoftmaxWithLoss",
        softmax_with_loss,
        f"Softmax, GatherElements, Max, Log, ReduceMean, Add, Mul, ReduceSum, Div, {_LABELS}",
        WEIGHTS_OF_CLASSES,
    ),
    Operator(
        "InfogainLoss",
        infogain_loss,
        f"Softmax, Max, Log, Squeeze, Gather, Transpose, Mul, ReduceSum, Div, {_LABELS}",
        {"normalize": "as in Caffe", **WEIGHTS_OF_CLASSES},
    ),
    Operator(
        "MultinomialLogisticLoss",
        multinomial_logistic_loss,
        "Cast, Reshape, GatherElements, Max, Log, ReduceSum, Mul",
    ),
    Operator(
        "SigmoidCrossEntropyLoss",
        sigmoid_cross_entropy_loss,
        "Softplus, Mul, Sub, Cast, Equal, Not, ReduceSum, Max, Div, Reshape",
        WEIGHTS_OF_CLASSES,
    ),
    Operator("EuclideanLoss", euclidean_loss, "Reshape, Sub, ReduceSumSquare, Mul"),
    Operator("SmoothL1Loss", smooth_l1_loss, "Sub, Mul, Abs, Add, Less, Where, ReduceSum"),
    Operator("HingeLoss", hinge_loss, "Cast, Reshape, OneHot, Mul, Sub, Relu, ReduceSum, ReduceSumSquare"),
    Operator(
        "ContrastiveLoss",
        contrastive_loss,
        "Sub, Flatten, ReduceSumSquare, Sqrt, Relu, Mul, Cast, Reshape, Equal, Where, ReduceSum",
    ),
    Operator(
        "Accuracy",
        accuracy,
        f"GatherElements, Less, ReduceSum, Greater, Mul, Max, Div, {_LABELS}",
    ),
)
