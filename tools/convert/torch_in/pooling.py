"""Pooling operators, and zeros around an image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise

from torch.fx import Node

from mgcaffe.engine.kernels.pooling import Window
from mgcaffe.tools.convert.importing.padding import padded_with_own, zero_padded
from mgcaffe.tools.convert.importing.pooling import average_pooled, check_windows, global_pooled, max_pooled, pooled
from mgcaffe.tools.convert.importing.reductions import reduced
from mgcaffe.tools.convert.importing.resizing import repeated, resampled
from mgcaffe.tools.convert.importing.values import Result, Value
from mgcaffe.tools.convert.importing.windows import Axis, axes_of
from mgcaffe.tools.convert.torch_in.operation import Operation, every_axis, operator_name
from mgcaffe.tools.convert.torch_in.resizing import weights

_ADDS_ZEROS = ("conv1d", "conv2d", "conv3d", "max_pool", "avg_pool", "pad", "constant_pad_nd")
"""How the names of operators begin whose layers can add zeros around an image, or that add their own to them."""
_SAME = ("contiguous", "clone", "alias", "to")


def _axis_count(op: Operation, x: Value) -> int:
    """Return how many spatial axes an operator has, which its name says; x has to have as many."""
    count = int(op.name[-2])
    if len(x.shape) != count + 2:
        op.refuse(f"the input has shape {x.shape}, without a batch axis")
    return count


def _windows(op: Operation, x: Value) -> list[Axis]:
    """Return the windows along each spatial axis."""
    count = _axis_count(op, x)
    given = (op.arguments.get(name, 1) for name in ("kernel_size", "padding", "dilation"))
    kernel, pads, gaps = (every_axis(sizes, count) for sizes in given)
    stride = every_axis(op["stride"], count) if op["stride"] else kernel
    axes = axes_of(op, x, kernel, stride, [(pad, pad) for pad in pads], gaps, ceil=bool(op["ceil_mode"]))
    check_windows(op, axes)
    return axes


def max_pool(op: Operation) -> Value:
    """max_pool1d, 2d, 3d: Pooling MAX; where windows are not Caffe's, also a Slice."""
    x = op.blob(padded=True)
    return max_pooled(op, x, _windows(op, x))


def average_pool(op: Operation) -> Value:
    """avg_pool1d, 2d, 3d: Pooling AVE; where it divides by other numbers than Caffe, also a Power or a Scale."""
    x = op.blob(padded=True)
    divisor, counts_padding = op.arguments.get("divisor_override"), bool(op["count_include_pad"])
    return average_pooled(op, x, _windows(op, x), counts_padding=counts_padding, divisor=divisor)


def adaptive_average_pool(op: Operation) -> Value:
    """adaptive_avg_pool1d, 2d, 3d: Pooling AVE, global for one value a channel; InnerProduct where windows differ."""
    x, out = op.blob(), op.shape[2:]
    count = _axis_count(op, x)
    if out == x.shape[2:]:
        return x
    if count != 2 and set(out) == {1}:
        return reduced(op, x, "MEAN", range(2, len(x.shape)), keep_axes=True)
    y = _adaptive(op, x, "AVE") if count == 2 else None
    return resampled(op, x, weights(op)) if y is None else y


def adaptive_max_pool(op: Operation) -> Sequence[Value]:
    """adaptive_max_pool1d, 2d: Pooling MAX; the places of the maxima are not made."""
    op.shape = tuple(int(size) for size in op.node.meta["val"][0].shape)
    x = op.blob()
    if op.shape == x.shape:
        return [x]
    if _axis_count(op, x) == 2:
        y = _adaptive(op, x, "MAX")
    else:
        window = _adaptive_window(x.shape[2], op.shape[2])
        y = None if window is None else max_pooled(op, x, [Axis(x.shape[2], *window, begin=0, end=0)])
    if y is None:
        op.refuse(f"its windows over {x.shape[2:]} for {op.shape[2:]} results differ in size; Pooling's are alike")
    return [y]


def _adaptive(op: Operation, x: Value, pool: str) -> Value | None:
    """Pool (N, C, H, W) by windows that are all alike; None where they are not."""
    out = op.shape[2:]
    if out == (1, 1):
        return global_pooled(op, x, pool)
    rows, columns = (_adaptive_window(size, count) for size, count in zip(x.shape[2:], out, strict=True))
    if rows is not None and columns is not None:
        return pooled(op, x, pool, Window((rows[0], columns[0]), (rows[1], columns[1]), ceil=False))
    if not any(count % size for size, count in zip(x.shape[2:], out, strict=True)):
        return repeated(op, x, [count // size for size, count in zip(x.shape[2:], out, strict=True)])
    return None


def _adaptive_window(size: int, count: int) -> tuple[int, int] | None:
    """Return kernel and stride of windows that are all alike; None where they are not, or start at the same pixel."""
    starts = [number * size // count for number in range(count)]
    kernels = {-(-(number + 1) * size // count) - start for number, start in enumerate(starts)}
    strides = {two - one for one, two in pairwise(starts)} or {1}
    alike = len(kernels) == len(strides) == 1 and strides != {0}
    return (kernels.pop(), strides.pop()) if alike else None


def pad(op: Operation) -> Result:
    """pad, constant_pad_nd: the pad of the convolution or average pooling behind it; else InnerProduct."""
    x, sizes = op.blob(padded=True), list(op["pad"])
    pairs = list(zip(sizes[::2], sizes[1::2], strict=True))[::-1]
    mode = op.arguments.get("mode", "constant")
    if mode != "constant":
        return padded_with_own(op, x, pairs, mode)
    if op.arguments.get("value"):
        op.refuse("it pads with another number than zero, which no layer does")
    return zero_padded(op, x, pairs, by_next=_add_zeros(op.readers()))


def _add_zeros(readers: Iterable[Node]) -> bool:
    """Return whether all that read a value can add zeros around it, directly or behind what hands it on."""
    return all(
        _add_zeros(each.users) if operator_name(each) in _SAME else operator_name(each).startswith(_ADDS_ZEROS)
        for each in readers
    )


OPERATORS: Mapping[str, Callable[[Operation], Result]] = {
    **dict.fromkeys([f"max_pool{axes}d" for axes in (1, 2, 3)], max_pool),
    **dict.fromkeys([f"avg_pool{axes}d" for axes in (1, 2, 3)], average_pool),
    **dict.fromkeys([f"adaptive_avg_pool{axes}d" for axes in (1, 2, 3)], adaptive_average_pool),
    **dict.fromkeys(["adaptive_max_pool1d", "adaptive_max_pool2d"], adaptive_max_pool),
    "pad": pad,
    "constant_pad_nd": pad,
}
