"""Pooling operators, and zeros around an image."""

from __future__ import annotations

from collections.abc import Callable

from mgcaffe.tools.convert.importing.padding import padded_with_own, zero_padded
from mgcaffe.tools.convert.importing.pooling import average_pooled, check_windows, global_pooled, max_pooled
from mgcaffe.tools.convert.importing.reductions import largest_of, reduced
from mgcaffe.tools.convert.importing.values import Value
from mgcaffe.tools.convert.importing.windows import Axis
from mgcaffe.tools.convert.onnx_in.graph import Graph
from mgcaffe.tools.convert.onnx_in.operation import LARGEST, Operation, Table, shape_of
from mgcaffe.tools.convert.onnx_in.windows import axes_of

_MODES = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}
"""By ONNX's name of how values are repeated at the edges, PyTorch's."""
_ADDS_ZEROS = ("Conv", "MaxPool", "AveragePool", "Pad")
"""Whose layers can add zeros around an image, or what adds its own to them."""
_SAME = ("Identity", "Cast")


def _windows(op: Operation, x: Value) -> list[Axis]:
    """Return the windows along each spatial axis, and set the shape of the result."""
    count = len(x.shape) - 2
    if count not in (1, 2, 3):
        op.refuse(f"the input has shape {x.shape}; images, rows and volumes are pooled")
    axes = axes_of(op, x, op.sizes("kernel_shape", count, None), ceil=bool(op.integer("ceil_mode", 0)))
    check_windows(op, axes)
    op.shape = (*x.shape[:2], *(axis.count for axis in axes))
    op.check_shape(op.shape)
    return axes


def max_pool(op: Operation) -> Value:
    """Pooling MAX; where windows are not Caffe's, also a Slice."""
    x = op.blob(padded=True)
    for name in op.node.outputs[1:]:
        if name and (op.graph.readers.get(name) or name in op.graph.outputs):
            op.refuse(f"'{name}', the places of the maxima, is read")
    return max_pooled(op, x, _windows(op, x))


def average_pool(op: Operation) -> Value:
    """Pooling AVE; where it divides by other numbers than Caffe, also a Power or a Scale of H x W, not trained."""
    x = op.blob(padded=True)
    return average_pooled(op, x, _windows(op, x), counts_padding=bool(op.integer("count_include_pad", 0)))


def _global(pool: str) -> Callable[[Operation], Value]:
    """Return the function of a pooling over all of an image."""

    def convert(op: Operation) -> Value:
        x = op.blob()
        if len(x.shape) == 4:
            return global_pooled(op, x, pool)
        if len(x.shape) < 3:
            op.refuse(f"the input has shape {x.shape}, without spatial axes")
        op.shape = (*x.shape[:2], *(1,) * (len(x.shape) - 2))
        axes = range(2, len(x.shape))
        if pool == "MAX":
            return largest_of(op, x, axes, keep_axes=True)
        return reduced(op, x, "MEAN", axes, keep_axes=True)

    others = "a Reduction" if pool == "AVE" else "between two Reshapes"
    convert.__doc__ = f"Pooling {pool}, global; of other than two axes {others}."
    return convert


def pad(op: Operation) -> Value:
    """Nothing by itself, before a convolution or pooling; else, and where pixels are repeated, InnerProduct, fixed."""
    x = op.blob(padded=True)
    if op.opset >= 11:
        pads, value = op.numbers(1, "pads"), op.number(2, "constant_value")
    else:
        pads, value = op.integers("pads"), op.real("value", 0.0)
    rank = len(x.shape)
    given = op.numbers(3, "axes") if op.opset >= 18 else None
    axes = list(range(rank)) if given is None else op.axes(given, rank)
    if pads is None or len(pads) != 2 * len(axes):
        op.refuse(f"its pads are {pads}, not two for each of {len(axes)} axes")
    pairs = dict.fromkeys(range(rank), (0, 0))
    pairs.update(zip(axes, zip(pads[: len(axes)], pads[len(axes) :], strict=True), strict=True))
    if not any(pads):
        return x
    if any(not 0 <= size <= LARGEST // 4 for size in pads):
        op.refuse(f"it pads by {pads}; a Slice cuts off, and zeros are at most {LARGEST // 4}")
    mode = op.word("mode", "constant")
    if mode in _MODES:
        return padded_with_own(op, x, [pairs[axis] for axis in range(rank)], _MODES[mode])
    if mode != "constant" or value:
        op.refuse("it pads with another number than zero, which no layer does")
    by_next = _add_zeros(op.graph, op.node.outputs[0])
    padded = zero_padded(op, x, [pairs[axis] for axis in range(rank)], by_next=by_next)
    op.check_shape(shape_of(padded))
    return padded


def _add_zeros(graph: Graph, name: str) -> bool:
    """Return whether all that read a value can add zeros around it, directly or behind what hands it on."""
    return name not in graph.outputs and all(
        _add_zeros(graph, each.outputs[0]) if each.kind in _SAME else each.kind in _ADDS_ZEROS
        for each in graph.readers.get(name, ())
    )


OPERATORS: Table = {
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": _global("AVE"),
    "GlobalMaxPool": _global("MAX"),
    "Pad": pad,
}
