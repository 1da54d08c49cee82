"""Operators that normalize: by running statistics, by those of an item, by neighbours."""

from __future__ import annotations

import re

from mgcaffe.tools.convert.importing import normalization
from mgcaffe.tools.convert.importing.values import Constant, Value
from mgcaffe.tools.convert.onnx_in.names import of_ours
from mgcaffe.tools.convert.onnx_in.operation import Operation, Table

_CONSTANT = re.compile(r".+:constant(#\d+)?", re.DOTALL)
"""What the exporter here calls arrays that are no parameters."""


def batch_norm(op: Operation) -> Value:
    """BatchNorm and Scale; BatchNorm alone where the exporter here wrote ones and zeros for the scale."""
    x = op.blob()
    if len(x.shape) < 2:
        op.refuse(f"its input has shape {x.shape}, without channels")
    if op.integer("training_mode", 0) or (op.opset < 14 and any(op.node.outputs[1:])):
        op.refuse("it normalizes by the batch, as in training", "export the model in evaluation mode")
    channels = x.shape[1:2]
    scale, bias, mean, variance = (
        op.weight(number, what, channels) for number, what in enumerate(("scale", "B", "mean", "variance"), 1)
    )
    is_plain = of_ours(op.node) is not None and all(_CONSTANT.fullmatch(name) for name in op.node.inputs[1:3])
    is_plain = is_plain and bool((scale.tensor == 1).all() and (bias.tensor == 0).all())
    own = (None, None) if is_plain else (scale, bias)
    # Statistics have no names: exporters store equal tensors once, and these must not be shared with weights.
    statistics = Constant(mean.tensor), Constant(variance.tensor)
    momentum = op.real("momentum", 0.9)
    if not 0 <= momentum < 1:
        momentum = 0.9  # counts in training alone
    return normalization.batch_norm(
        op, x, own, statistics, eps=op.real("epsilon", 1e-5), momentum=1 - momentum
    )  # fmt: skip


def layer_norm(op: Operation) -> Value:
    """LayerNorm."""
    x = op.blob()
    if any(op.node.outputs[1:]):
        _refuse_outputs(op)
    axis = op.axis(op.integer("axis", -1), len(x.shape))
    if axis == 0:
        op.refuse("it normalizes over the batch axis, over which no layer but a loss goes")
    weight = _whole(op, 1, "scale", x.shape[axis:])
    bias = _whole(op, 2, "B", x.shape[axis:]) if op.input(2) is not None else None
    axes = len(x.shape) - axis
    return normalization.layer_norm(op, x, weight, bias, eps=op.real("epsilon", 1e-5), axes=axes)


def rms_norm(op: Operation) -> Value:
    """Power, Reduction MEAN, Power, Scale, and Scale by the weight; Pooling and Flatten over H and W."""
    x = op.blob()
    axis = op.axis(op.integer("axis", -1), len(x.shape))
    if axis == 0:
        op.refuse("it normalizes over the batch axis, over which no layer but a loss goes")
    weight = _whole(op, 1, "scale", x.shape[axis:])
    return normalization.rms_norm(op, x, weight, eps=op.real("epsilon", 1e-5), axes=len(x.shape) - axis)


def unit_norm(op: Operation) -> Value:
    """Reduction, Power, Scale."""
    x, order = op.blob(), op.integer("p", 2)
    if order not in (1, 2):
        op.refuse(f"its p is {order}; it has to be 1 or 2")
    return normalization.unit_norm(op, x, order, op.axis(op.integer("axis", -1), len(x.shape)))


def mean_variance_norm(op: Operation) -> Value:
    """MVN; of other axes than those behind the first or second between Permutes and Reshapes; not over the batch."""
    x = op.blob()
    axes = sorted(op.axes(op.integers("axes") or [0, 2, 3], len(x.shape)))
    if axes[0] == 0:
        op.refuse("it normalizes over the batch axis, over which no layer but a loss goes")
    return normalization.mean_variance_norm(op, x, axes)


def _refuse_outputs(op: Operation) -> None:
    """Refuse outputs behind the first that something reads."""
    for name in op.node.outputs[1:]:
        if name and (op.graph.readers.get(name) or name in op.graph.outputs):
            op.refuse(f"'{name}' is read; the layer has only the first output")


def _whole(op: Operation, number: int, what: str, shape: tuple[int, ...]) -> Constant:
    """Return a parameter in the shape of all axes that are normalized."""
    found = op.weight(number, what)
    if tuple(found.tensor.shape) == shape:
        return found
    if op.broadcast(tuple(found.tensor.shape), shape) != shape:
        op.refuse(f"its {what} has shape {tuple(found.tensor.shape)}, not {shape}")
    return Constant(found.tensor.expand(shape).contiguous(), trained=True)


def instance_norm(op: Operation) -> Value:
    """LayerNorm over the image, and Scale."""
    x = op.blob()
    if len(x.shape) < 3:
        op.refuse(f"its input has shape {x.shape}, without images")
    scale, bias = op.weight(1, "scale", x.shape[1:2]), op.weight(2, "B", x.shape[1:2])
    return normalization.instance_norm(op, x, scale, bias, eps=op.real("epsilon", 1e-5))


def group_norm(op: Operation) -> Value:
    """LayerNorm over the groups as one axis each, and Scale."""
    x, groups = op.blob(), op.integer("num_groups", 0)
    if len(x.shape) < 3 or groups < 1 or x.shape[1] % groups:
        op.refuse(f"it makes {groups} groups of an input of shape {x.shape}")
    count = x.shape[1] if op.opset >= 21 else groups
    scale, bias = (
        Constant(each.tensor.repeat_interleave(x.shape[1] // count), each.name, each.trained)
        for each in (op.weight(1, "scale", (count,)), op.weight(2, "bias", (count,)))
    )
    return normalization.group_norm(op, x, groups, scale, bias, eps=op.real("epsilon", 1e-5))


def neighbours(op: Operation) -> Value:
    """LRN across channels."""
    given = {"alpha": op.real("alpha", 1e-4), "beta": op.real("beta", 0.75), "k": op.real("bias", 1.0)}
    return normalization.neighbours(op, op.blob(), op.integer("size", 0), **given)


OPERATORS: Table = {
    "BatchNormalization": batch_norm,
    "LayerNormalization": layer_norm,
    "RMSNormalization": rms_norm,
    "LpNormalization": unit_norm,
    "MeanVarianceNormalization": mean_variance_norm,
    "InstanceNormalization": instance_norm,
    "GroupNormalization": group_norm,
    "LRN": neighbours,
}
