"""Pooling operators, and zeros around an image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mgcaffe.engine.kernels.pooling import Window
from mgcaffe.tools.convert.importing.pooling import global_pooled, pooled, zero_padded
from mgcaffe.tools.convert.importing.values import Result, Value
from mgcaffe.tools.convert.torch_in.operation import Operation


def _pair(sizes: Any) -> tuple[int, int]:
    sizes = [sizes] if isinstance(sizes, int) else list(sizes)
    return (sizes[0], sizes[-1])


def max_pool(op: Operation) -> Value:
    """max_pool2d: Pooling MAX."""
    if _pair(op["dilation"]) != (1, 1):
        op.refuse("its windows have holes, which Pooling can't")
    return pooled(op, op.blob(), "MAX", _window(op))


def average_pool(op: Operation) -> Value:
    """avg_pool2d: Pooling AVE."""
    x, window = op.blob(padded=True), _window(op)
    if op["divisor_override"] is not None:
        op.refuse("it divides by a number of its own; Pooling divides by the window's size")
    if x.pad:
        if any(window.pad) or window.ceil:
            op.refuse("zeros are put around an image that is pooled with padding or rounding up")
        window, x = replace(window, pad=_pair(x.pad)), replace(x, pad=())
    elif any(window.pad) and not op["count_include_pad"]:
        op.refuse("it divides by the window's size without padding; Pooling counts the padding")
    return pooled(op, x, "AVE", window)


def _window(op: Operation) -> Window:
    kernel = _pair(op["kernel_size"])
    stride = _pair(op["stride"]) if op["stride"] else kernel
    return Window(kernel, stride, _pair(op["padding"]), ceil=bool(op["ceil_mode"]))


def adaptive_average_pool(op: Operation) -> Value:
    """adaptive_avg_pool2d: Pooling AVE, global for one value a channel."""
    return _adaptive(op, "AVE")


def adaptive_max_pool(op: Operation) -> Sequence[Value]:
    """adaptive_max_pool2d: Pooling MAX; the places of the maxima are not made."""
    op.shape = tuple(int(size) for size in op.node.meta["val"][0].shape)
    return [_adaptive(op, "MAX")]


def _adaptive(op: Operation, pool: str) -> Value:
    x, out = op.blob(), op.shape[2:]
    if out == (1, 1) and len(x.shape) == 4:
        return global_pooled(op, x, pool)
    if out == x.shape[2:]:
        return x
    if any(size % count for size, count in zip(x.shape[2:], out, strict=True)):
        op.refuse(f"{x.shape[2:]} is no multiple of the output's size {out}, so its windows have different sizes")
    kernel = _pair([size // count for size, count in zip(x.shape[2:], out, strict=True)])
    return pooled(op, x, pool, Window(kernel, kernel, ceil=False))


def zero_pad(op: Operation) -> Result:
    """pad, constant_pad_nd: the pad of the convolution or average pooling behind it."""
    x, sizes = op.blob(), list(op["pad"])
    if op.arguments.get("mode", "constant") != "constant" or op.arguments.get("value"):
        op.refuse("it pads with something other than zeros, which no layer does")
    pairs = list(zip(sizes[::2], sizes[1::2], strict=True))[::-1]
    return zero_padded(op, x, pairs)


OPERATORS: Mapping[str, Callable[[Operation], Result]] = {
    "max_pool2d": max_pool,
    "avg_pool2d": average_pool,
    "adaptive_avg_pool2d": adaptive_average_pool,
    "adaptive_max_pool2d": adaptive_max_pool,
    "pad": zero_pad,
    "constant_pad_nd": zero_pad,
}
