"""Normalization by statistics, of a batch or of an item."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from mgcaffe.tools.convert.importing.arithmetic import product_of
from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.reductions import reduced
from mgcaffe.tools.convert.importing.shapes import permuted, reshaped
from mgcaffe.tools.convert.importing.values import Constant, Value


def batch_norm(
    op: Operation,
    x: Value,
    scale: tuple[Constant | None, Constant | None],
    statistics: tuple[Constant, Constant] | None,
    *,
    eps: float,
    momentum: float,
) -> Value:
    """Add a BatchNorm, whose sums are those that running averages are the steady state of, then a Scale.

    Args:
        op: the operator.
        x: (N, C, ...).
        scale: weight and bias (C), each may be missing.
        statistics: running mean and variance (C); None: those of each batch.
        eps: is added to the variance.
        momentum: the part that a new batch has in the averages.
    """
    weight, bias = scale
    param: dict[str, Any] = {"eps": eps}
    if statistics is None:
        param["use_global_stats"] = False
        nothing = torch.zeros(x.shape[1])
        blobs = [Constant(nothing), Constant(nothing), Constant(torch.zeros(1))]
    else:
        blobs = _sums(*statistics, momentum)
        param["moving_average_fraction"] = 1 - momentum
    y = op.layer("BatchNorm", [x], blobs=blobs, batch_norm_param=param)
    return _scaled(op, y, weight, bias)


def _scaled(op: Operation, y: Value, weight: Constant | None, bias: Constant | None) -> Value:
    """Add a Scale or Bias with one value for each channel, or nothing."""
    if weight is None:
        return y if bias is None else op.layer("Bias", [y], part="bias", blobs=[bias])
    fields = {"bias_term": True} if bias else {}
    return op.layer("Scale", [y], part="scale", blobs=[weight, *([bias] if bias else [])], scale_param=fields)


def _sums(mean: Constant, variance: Constant, momentum: float) -> list[Constant]:
    """Return the blobs of BatchNorm that go on as running averages do, under names that are not the averages'.

    With f = 1 - momentum and the sum of weights 1 / momentum, W2 becomes f / momentum + 1 = 1 / momentum again, and
    W0 / W2 becomes f mean + momentum times the batch's.
    """
    weight = 1 / momentum if momentum else 1.0
    return [
        Constant(mean.tensor.double() * weight, mean.name and f"{mean.name}.sum"),
        Constant(variance.tensor.double() * weight, variance.name and f"{variance.name}.sum"),
        Constant(torch.tensor([weight]), mean.name and f"{mean.name}.weight"),
    ]


def layer_norm(
    op: Operation, x: Value, weight: Constant | None, bias: Constant | None, *, eps: float, axes: int
) -> Value:
    """Add a LayerNorm over the last `axes` axes."""
    param: dict[str, Any] = {"eps": eps}
    if axes != 1:
        param["axis"] = -axes
    if weight is None:
        if bias is not None:
            op.refuse("it has a bias but no scale, which LayerNorm can't")
        param["affine"] = False
    elif bias is None:
        param["bias_term"] = False
    blobs = [each for each in (weight, bias) if each is not None]
    return op.layer("LayerNorm", [x], blobs=blobs, layer_norm_param=param)


def rms_norm(op: Operation, x: Value, weight: Value | Constant | None, *, eps: float, axes: int) -> Value:
    """Divide by the root of the mean of squares over the last `axes` axes: Power, Reduction, Power, Scale.

    Args:
        op: the operator.
        x: the value.
        weight: what the quotient is multiplied by, with the sizes of these axes; None: nothing.
        eps: is added to the mean.
        axes: how many.
    """
    rank = len(x.shape)
    squares = op.layer("Power", [x], x.shape, part="squares", power_param={"power": 2})
    with op.step("mean", x.shape):
        mean = reduced(op, squares, "MEAN", range(rank - axes, rank), keep_axes=False)
    factor = op.layer("Power", [mean], mean.shape, part="factor", power_param={"power": -0.5, "shift": eps})
    op.shape = x.shape
    part = "" if weight is None else "normalized"
    y = op.layer("Scale", [x, factor], part=part, scale_param={"axis": 0})
    return y if weight is None else product_of(op, y, weight)


def unit_norm(op: Operation, x: Value, order: int, axis: int) -> Value:
    """Divide by the norm of order 1 or 2 along an axis: Reduction, Power, Scale. Zeros stay zeros."""
    with op.step("sum", x.shape):
        total = reduced(op, x, "SUMSQ" if order == 2 else "ASUM", [axis], keep_axes=True)
    param = {"power": -1 / order, "shift": 1e-30}
    factor = op.layer("Power", [total], total.shape, part="factor", power_param=param)
    op.shape = x.shape
    return product_of(op, x, factor)


def mean_variance_norm(op: Operation, x: Value, axes: Sequence[int]) -> Value:
    """Add an MVN over axes behind the first, of other axes than those behind the second between Reshapes and Permutes.

    Args:
        op: the operator.
        x: the value.
        axes: which, in their order.
    """
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    if len(x.shape) == 4 and kept in ([0], [0, 1]):
        return op.layer("MVN", [x], x.shape, mvn_param={} if kept[1:] else {"across_channels": True})
    order = [*kept, *axes]
    turned = permuted(op, x, order, "order")
    channels, inner = (math.prod(x.shape[axis] for axis in group) for group in (kept[1:], axes))
    shape = (x.shape[0], channels, 1, inner)
    y = op.layer("MVN", [reshaped(op, turned, shape, "image")], shape, part="normalized")
    return permuted(op, reshaped(op, y, turned.shape, "apart"), [order.index(axis) for axis in range(len(order))])


def instance_norm(op: Operation, x: Value, weight: Constant | None, bias: Constant | None, *, eps: float) -> Value:
    """Add a LayerNorm over the image of (N, C, ...), and a Scale with weight and bias (C)."""
    return _scaled(op, _centered(op, x, eps), weight, bias)


def group_norm(
    op: Operation, x: Value, groups: int, weight: Constant | None, bias: Constant | None, *, eps: float
) -> Value:
    """Add a LayerNorm over the groups of (N, C, ...) as one axis each, and a Scale with weight and bias (C)."""
    values = math.prod(x.shape[1:]) // groups
    y = _centered(op, reshaped(op, x, (x.shape[0], groups, values), "groups"), eps)
    return _scaled(op, reshaped(op, y, x.shape, "channels"), weight, bias)


def _centered(op: Operation, x: Value, eps: float) -> Value:
    param: dict[str, Any] = {"eps": eps, "affine": False, "axis": 2}
    return op.layer("LayerNorm", [x], x.shape, layer_norm_param=param)


def neighbours(op: Operation, x: Value, size: int, *, alpha: float, beta: float, k: float) -> Value:
    """Add an LRN across channels; `alpha` is divided by `size`, as in Caffe."""
    if len(x.shape) != 4:
        op.refuse(f"its input has shape {x.shape}; LRN takes (N, C, H, W)")
    if size < 1 or size % 2 == 0 or size > 2 * x.shape[1] + 1:
        op.refuse(f"its size is {size}; LRN takes an odd number of neighbours, and not more than there are")
    defaults = {"local_size": 5, "alpha": 1.0, "beta": 0.75, "k": 1.0}
    given = {"local_size": size, "alpha": alpha, "beta": beta, "k": k}
    param = {name: each for name, each in given.items() if each != defaults[name]}
    return op.layer("LRN", [x], x.shape, lrn_param=param)
