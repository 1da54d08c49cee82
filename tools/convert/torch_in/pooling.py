"""Pooling operators, zeros around an image, and images made larger."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from mgcaffe.engine.kernels.pooling import Window
from mgcaffe.tools.convert.importing.pooling import average_pooled, check_windows, global_pooled, max_pooled, pooled
from mgcaffe.tools.convert.importing.resizing import interpolated, repeated
from mgcaffe.tools.convert.importing.values import Result, Value
from mgcaffe.tools.convert.importing.windows import Axis, axes_of, zero_padded
from mgcaffe.tools.convert.torch_in.operation import Operation


def _pair(sizes: Any) -> tuple[int, int]:
    sizes = [sizes] if isinstance(sizes, int) else list(sizes)
    return (sizes[0], sizes[-1])


def _windows(op: Operation, x: Value) -> list[Axis]:
    """Return the windows along H and W."""
    if len(x.shape) != 4:
        op.refuse(f"the input has shape {x.shape}; Pooling takes (N, C, H, W)")
    kernel, pads, gaps = _pair(op["kernel_size"]), _pair(op["padding"]), _pair(op.arguments.get("dilation", 1))
    stride = _pair(op["stride"]) if op["stride"] else kernel
    axes = axes_of(op, x, kernel, stride, [(pad, pad) for pad in pads], gaps, ceil=bool(op["ceil_mode"]))
    check_windows(op, axes)
    counts = tuple(axis.count for axis in axes)
    if counts != op.shape[2:]:  # rounded up, zeros around an image count as a part of it
        op.refuse(f"its windows are not Caffe's: the output is {op.shape[2:]} instead of {counts}")
    return axes


def max_pool(op: Operation) -> Value:
    """max_pool2d: Pooling MAX; where windows are not Caffe's, also a Slice."""
    x = op.blob(padded=True)
    return max_pooled(op, x, _windows(op, x))


def average_pool(op: Operation) -> Value:
    """avg_pool2d: Pooling AVE; where it divides by other numbers than Caffe, also a Power or a Scale of H x W."""
    x = op.blob(padded=True)
    divisor, counts_padding = op["divisor_override"], bool(op["count_include_pad"])
    return average_pooled(op, x, _windows(op, x), counts_padding=counts_padding, divisor=divisor)


def adaptive_average_pool(op: Operation) -> Value:
    """adaptive_avg_pool2d: Pooling AVE, global for one value a channel."""
    return _adaptive(op, "AVE")


def adaptive_max_pool(op: Operation) -> Sequence[Value]:
    """adaptive_max_pool2d: Pooling MAX; the places of the maxima are not made."""
    op.shape = tuple(int(size) for size in op.node.meta["val"][0].shape)
    return [_adaptive(op, "MAX")]


def _adaptive(op: Operation, pool: str) -> Value:
    x, out = op.blob(), op.shape[2:]
    if len(x.shape) != 4:
        op.refuse(f"the input has shape {x.shape}; Pooling takes (N, C, H, W)")
    if out == (1, 1):
        return global_pooled(op, x, pool)
    if out == x.shape[2:]:
        return x
    rows, columns = (_adaptive_window(size, count) for size, count in zip(x.shape[2:], out, strict=True))
    if rows is not None and columns is not None:
        return pooled(op, x, pool, Window((rows[0], columns[0]), (rows[1], columns[1]), ceil=False))
    if not any(count % size for size, count in zip(x.shape[2:], out, strict=True)):
        return repeated(op, x, [count // size for size, count in zip(x.shape[2:], out, strict=True)])
    op.refuse(f"{x.shape[2:]} is no multiple of the output's size {out}, so its windows have different sizes")


def _adaptive_window(size: int, count: int) -> tuple[int, int] | None:
    """Return kernel and stride of windows that are all alike; None where they are not, or start at the same pixel."""
    starts = [number * size // count for number in range(count)]
    kernels = {-(-(number + 1) * size // count) - start for number, start in enumerate(starts)}
    strides = {two - one for one, two in pairwise(starts)} or {1}
    alike = len(kernels) == len(strides) == 1 and strides != {0}
    return (kernels.pop(), strides.pop()) if alike else None


def zero_pad(op: Operation) -> Result:
    """pad, constant_pad_nd: the pad of the convolution or average pooling behind it."""
    x, sizes = op.blob(padded=True), list(op["pad"])
    if op.arguments.get("mode", "constant") != "constant" or op.arguments.get("value"):
        op.refuse("it pads with something other than zeros, which no layer does")
    pairs = list(zip(sizes[::2], sizes[1::2], strict=True))[::-1]
    return zero_padded(op, x, pairs)


def nearest(op: Operation) -> Value:
    """upsample_nearest2d: Deconvolution with ones, for pixels that are repeated."""
    x = op.blob()
    factors = [size // own for size, own in zip(op.shape[2:], x.shape[2:], strict=True)]
    places = torch.arange(float(x.shape[2] * x.shape[3])).view(1, 1, *x.shape[2:])
    target: Any = op.node.target
    found = target(places, op["output_size"], op["scale_factors"])
    repeats = places.repeat_interleave(max(1, factors[0]), 2).repeat_interleave(max(1, factors[1]), 3)
    if not torch.equal(found, repeats):
        op.refuse(f"it takes pixels of {x.shape[2:]} for {op.shape[2:]}; layers repeat each by a whole factor")
    return x if factors == [1, 1] else repeated(op, x, factors)


def bilinear(op: Operation) -> Value:
    """upsample_bilinear2d: Interp."""
    if not op["align_corners"]:
        op.refuse("it interpolates between centres of pixels; Interp between corners", "align_corners=True")
    return interpolated(op, op.blob(), op.shape[2:])


OPERATORS: Mapping[str, Callable[[Operation], Result]] = {
    "max_pool2d": max_pool,
    "avg_pool2d": average_pool,
    "adaptive_avg_pool2d": adaptive_average_pool,
    "adaptive_max_pool2d": adaptive_max_pool,
    "upsample_nearest2d": nearest,
    "_upsample_nearest_exact2d": nearest,
    "upsample_bilinear2d": bilinear,
    "pad": zero_pad,
    "constant_pad_nd": zero_pad,
}
