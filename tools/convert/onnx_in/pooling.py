"""Pooling operators, and zeros around an image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

import torch

from mgcaffe.engine.kernels.pooling import Window
from mgcaffe.tools.convert.importing.arithmetic import with_constant
from mgcaffe.tools.convert.importing.pooling import global_pooled, pooled
from mgcaffe.tools.convert.importing.reductions import reduced
from mgcaffe.tools.convert.importing.values import Constant, Shape, Value
from mgcaffe.tools.convert.onnx_in.operation import LARGEST, Operation, Padded, Table
from mgcaffe.tools.convert.onnx_in.windows import Axis, axes_of, with_windows

_NOT_NEGATIVE = ("ReLU", "ReLU6", "Sigmoid", "HardSigmoid", "AbsVal", "Exp", "Softmax", "BNLL")
"""Layers with values of 0 or more, around which zeros change no maximum."""


def _windows(op: Operation, x: Value) -> list[Axis]:
    """Return the windows along H and W, and set the shape of the result."""
    if len(x.shape) != 4:
        op.refuse(f"the input has shape {x.shape}; Pooling takes (N, C, H, W)")
    if any(size != 1 for size in op.sizes("dilations", 2, 1)):
        op.refuse("its windows have holes, which Pooling can't")
    axes = axes_of(op, x, op.sizes("kernel_shape", 2, None), ceil=bool(op.integer("ceil_mode", 0)))
    if any(max(axis.begin, axis.end) >= axis.kernel for axis in axes):
        op.refuse("its padding is not smaller than its kernel, which Pooling can't")
    if any((axis.count - 1) * axis.stride - axis.begin >= axis.size for axis in axes):
        op.refuse("a window lies outside of the image")
    op.shape = (*x.shape[:2], *(axis.count for axis in axes))
    op.check_shape(op.shape)
    return axes


def _caffe_window(op: Operation, axes: Sequence[Axis]) -> tuple[Window, tuple[int, ...]]:
    """Return a window of Caffe's with all these windows, and the number of the first one, along each axis.

    The best is one that has no others; else the others are cut off.
    """
    found: list[tuple[bool, Window, tuple[int, ...]]] = []
    size, counts = [axis.size for axis in axes], [axis.count for axis in axes]
    ceils = (True, False) if axes[0].ceil else (False, True)
    choices = [range(max(0, axis.symmetric()[1] - 2), axis.symmetric()[1] + 1) for axis in axes]
    for ceil, firsts in product(ceils, product(*choices)):
        pad = [axis.begin + first * axis.stride for axis, first in zip(axes, firsts, strict=True)]
        if any(each >= axis.kernel for each, axis in zip(pad, axes, strict=True)):
            continue
        rows, columns = axes
        window = Window((rows.kernel, columns.kernel), (rows.stride, columns.stride), (pad[0], pad[1]), ceil)
        has = window.output_size(size)
        enough = [have >= first + want for have, first, want in zip(has, firsts, counts, strict=True)]
        if all(enough):
            found.append((tuple(has) == tuple(counts), window, firsts))
    if not found:
        op.refuse("it pads more at one side than at the other, in a way that Pooling can't")
    _, window, firsts = max(found, key=lambda each: each[0])  # the first of the best
    return window, firsts


def _pooled(op: Operation, x: Value, pool: str, axes: Sequence[Axis]) -> tuple[Value, Window]:
    window, firsts = _caffe_window(op, axes)
    rows, columns = window.output_size([axis.size for axis in axes])

    def make(shape: Shape) -> Value:
        op.shape = shape
        return pooled(op, Value(x.blob, x.shape), pool, window)

    return with_windows(op, firsts, (rows, columns), make), window


def max_pool(op: Operation) -> Value:
    """Pooling MAX; where windows are not Caffe's, also a Slice."""
    x = op.blob(padded=True)
    for name in op.node.outputs[1:]:
        if name and (op.graph.readers.get(name) or name in op.graph.outputs):
            op.refuse(f"'{name}', the places of the maxima, is read")
    if isinstance(x, Padded) and op.made.kind_of(x) not in _NOT_NEGATIVE:
        op.refuse("zeros are put around an image whose values may be smaller", "pad in the pooling itself")
    return _pooled(op, x, "MAX", _windows(op, x))[0]


def average_pool(op: Operation) -> Value:
    """Pooling AVE; where it divides by other numbers than Caffe, also a Scale of H x W that is not trained."""
    x, counted = op.blob(padded=True), bool(op.integer("count_include_pad", 0))
    axes = _windows(op, x)
    if isinstance(x, Padded):
        own = op.word("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER") or any(op.integers("pads") or ())
        if own and not counted:
            op.refuse("zeros are put around an image that is pooled with padding")
        counted = True
    y, window = _pooled(op, x, "AVE", axes)
    factors = [
        _factors(axis, pad, counted=counted) for axis, pad in zip(axes, window.pad, strict=True)
    ]  # fmt: skip
    if all(bool((each == 1).all()) for each in factors):
        return y
    scale = Constant(factors[0][:, None] * factors[1][None, :])
    return with_constant(op, "Scale", y, scale)


def _factors(axis: Axis, pad: int, *, counted: bool) -> torch.Tensor:
    """Return for each window by how many pixels Caffe divides, over those that ONNX divides by."""
    starts = torch.arange(axis.count, dtype=torch.float64) * axis.stride - axis.begin
    ends = starts + axis.kernel
    caffe = ends.clamp(max=axis.size + pad) - starts
    low, high = (-axis.begin, axis.size + axis.end) if counted else (0, axis.size)
    return caffe / (ends.clamp(max=high) - starts.clamp(min=low))


def _global(pool: str) -> Callable[[Operation], Value]:
    """Return the function of a pooling over all of an image."""

    def convert(op: Operation) -> Value:
        x = op.blob()
        if len(x.shape) == 4:
            return global_pooled(op, x, pool)
        if pool == "MAX" or len(x.shape) < 3:
            op.refuse(f"the input has shape {x.shape}; Pooling takes (N, C, H, W)")
        op.shape = (*x.shape[:2], *(1,) * (len(x.shape) - 2))
        return reduced(op, x, "MEAN", range(2, len(x.shape)), keep_axes=True)

    convert.__doc__ = f"Pooling {pool}, global." + (" Of other than two axes a Reduction." if pool == "AVE" else "")
    return convert


def zero_pad(op: Operation) -> Value:
    """Nothing by itself: the pad of the convolution or pooling behind it."""
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
    if op.word("mode", "constant") != "constant" or value:
        op.refuse("it pads with something other than zeros, which no layer does")
    if rank < 3 or any(any(pairs[axis]) for axis in (0, 1)):
        op.refuse("it pads an axis that is not spatial, which no layer does")
    if any(not 0 <= size <= LARGEST // 4 for size in pads):
        op.refuse(f"it pads by {pads}; a Slice cuts off, and zeros are at most {LARGEST // 4}")
    front, behind = (tuple(pairs[axis][side] for axis in range(2, rank)) for side in (0, 1))
    if isinstance(x, Padded):
        front, behind = _added(front, x.pad), _added(behind, x.behind)
    padded = Padded(x.blob, x.shape, front, behind)
    op.check_shape(padded.whole_shape)
    return padded


def _added(one: Shape, two: Shape) -> Shape:
    return tuple(first + second for first, second in zip(one, two, strict=True))


OPERATORS: Table = {
    "MaxPool": max_pool,
    "AveragePool": average_pool,
    "GlobalAveragePool": _global("AVE"),
    "GlobalMaxPool": _global("MAX"),
    "Pad": zero_pad,
}
