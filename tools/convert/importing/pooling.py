"""Pooling: Caffe's windows and divisors, or what makes others of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import torch

from mgcaffe.engine.kernels.pooling import Window
from mgcaffe.tools.convert.importing.arithmetic import product_of
from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.shapes import reshaped
from mgcaffe.tools.convert.importing.values import Constant, Padded, Shape, Value
from mgcaffe.tools.convert.importing.windows import Axis, unpadded, with_windows

_NOT_NEGATIVE = ("ReLU", "ReLU6", "Sigmoid", "HardSigmoid", "AbsVal", "Exp", "Softmax", "BNLL")
"""Layers with values of 0 or more, around which zeros change no maximum."""


def pooled(op: Operation, x: Value, pool: str, window: Window) -> Value:
    """Add a Pooling whose windows are also Caffe's, which the operator's shape shows."""
    if len(x.shape) != 4:
        op.refuse(f"the input has shape {x.shape}; Pooling takes (N, C, H, W)")
    if window.output_size(x.shape[2:]) != op.shape[2:]:
        op.refuse(
            f"its windows are not Caffe's: the output is {op.shape[2:]} instead of {window.output_size(x.shape[2:])}"
        )
    if any(pad >= kernel for pad, kernel in zip(window.pad, window.kernel, strict=True)):
        op.refuse("its padding is not smaller than its kernel, which Pooling can't")
    param: dict[str, Any] = {"pool": pool}
    _sides(param, "kernel_size", "kernel", window.kernel, None)
    _sides(param, "stride", "stride", window.stride, 1)
    _sides(param, "pad", "pad", window.pad, 0)
    if not window.ceil and window.stride != (1, 1):
        param["round_mode"] = "FLOOR"
    return op.layer("Pooling", [x], pooling_param=param)


def _sides(param: dict[str, Any], field: str, short: str, sizes: tuple[int, int], neutral: int | None) -> None:
    """Put a field into pooling_param, once or for rows and columns, unless it has its default."""
    if sizes[0] != sizes[1]:
        param.update({f"{short}_h": sizes[0], f"{short}_w": sizes[1]})
    elif sizes[0] != neutral:
        param[field] = sizes[0]


def global_pooled(op: Operation, x: Value, pool: str) -> Value:
    """Add a Pooling with one value for each channel of (N, C, H, W)."""
    return op.layer("Pooling", [x], (*x.shape[:2], 1, 1), pooling_param={"pool": pool, "global_pooling": True})


def check_windows(op: Operation, axes: Sequence[Axis]) -> None:
    """Refuse windows that no Pooling has."""
    if any(axis.dilation != 1 for axis in axes):
        op.refuse("its windows have holes, which Pooling can't")
    if any(max(axis.begin, axis.end) >= axis.kernel for axis in axes):
        op.refuse("its padding is not smaller than its kernel, which Pooling can't")
    if any((axis.count - 1) * axis.stride - axis.begin >= axis.size for axis in axes):
        op.refuse("a window lies outside of the image")


def _is_not_negative(op: Operation, x: Value) -> bool:
    layer = op.made.maker_of(x)
    return layer.type in _NOT_NEGATIVE and not layer.relu_param.negative_slope


def max_pooled(op: Operation, x: Value, axes: Sequence[Axis]) -> Value:
    """Add a Pooling MAX; where windows are not Caffe's, also a Slice.

    Args:
        op: the operator; its shape is that of the result.
        x: (N, C, H, W), (N, C, W) or (N, C, D, H, W); the zeros around it are those of `axes`.
        axes: the windows, which `check_windows` has seen.
    """
    if isinstance(x, Padded) and not _is_not_negative(op, x):
        op.refuse("zeros are put around an image whose values may be smaller", "pad in the pooling itself")
    return _over_images(op, x, axes, lambda image, both: _pooled(op, image, "MAX", both)[0])


def average_pooled(
    op: Operation, x: Value, axes: Sequence[Axis], *, counts_padding: bool, divisor: int | None = None
) -> Value:
    """Add a Pooling AVE; where it divides by other numbers than Caffe, also a Power or an untrained Scale of H x W.

    Args:
        op, x, axes: as for `max_pooled`.
        counts_padding: the operator's own zeros count as pixels; those around x do in any case.
        divisor: the sums of all windows are divided by it; None: by how many pixels they have.
    """
    if len(axes) == 3 and divisor is not None:
        op.refuse("it divides the sums over volumes by another number than they have values")

    def make(image: Value, both: Sequence[Axis]) -> Value:
        return _averaged(op, image, both, counts_padding, divisor)

    return _over_images(op, x, axes, make)


def _averaged(op: Operation, x: Value, axes: Sequence[Axis], counts_padding: bool, divisor: int | None) -> Value:
    y, window = _pooled(op, x, "AVE", axes)
    around = list(zip(x.pad, x.behind, strict=True)) if isinstance(x, Padded) else [(0, 0)] * len(axes)
    if counts_padding:
        around = [(axis.begin, axis.end) for axis in axes]
    caffe, wanted = (
        sizes[0][:, None] * sizes[1][None, :]
        for sizes in (
            [_sizes(axis, window.pad[place], window.pad[place]) for place, axis in enumerate(axes)],
            [_sizes(axis, *zeros) for axis, zeros in zip(axes, around, strict=True)],
        )
    )
    factors = caffe / (wanted if divisor is None else divisor)
    op.multiply_by(factors)
    first = float(factors[0, 0])
    if not bool((factors == first).all()):
        return product_of(op, y, Constant(factors))
    return y if first == 1 else op.layer("Power", [y], part="divisor", power_param={"scale": first})


def _over_images(
    op: Operation, x: Value, axes: Sequence[Axis], make: Callable[[Value, Sequence[Axis]], Value]
) -> Value:
    """Pool (N, C, H, W); (N, C, W) as images of one row; (N, C, D, H, W) along H and W, then along D.

    Args:
        op: the operator; its shape is that of the result.
        x, axes: as for `max_pooled`.
        make: adds the layers for images, with their windows along both axes.
    """
    if len(axes) == 2:
        return make(x, axes)
    if len(axes) == 3:
        return _over_volumes(op, x, axes, make)
    wanted = op.shape
    image = reshaped(op, unpadded(x), (*x.shape[:2], 1, *x.shape[2:]), "image")
    if isinstance(x, Padded):
        image = Padded(image.blob, image.shape, (0, *x.pad), (0, *x.behind))
    op.shape = (*wanted[:2], 1, *wanted[2:])
    y = make(image, [Axis(size=1, kernel=1, stride=1, begin=0, end=0, ceil=axes[0].ceil), *axes])
    op.shape = wanted
    return reshaped(op, y, wanted, "row")


def _over_volumes(
    op: Operation, x: Value, axes: Sequence[Axis], make: Callable[[Value, Sequence[Axis]], Value]
) -> Value:
    """Pool (N, C, D, H, W) along H and W, then along D; arguments as for `_over_images`."""
    wanted = op.shape
    (batch, channels, depth), (count, rows, columns) = x.shape[:3], wanted[2:]
    planes = reshaped(op, unpadded(x), (batch, channels * depth, *x.shape[3:]), "planes")
    if isinstance(x, Padded):
        planes = Padded(planes.blob, planes.shape, x.pad[1:], x.behind[1:])
    op.shape = (batch, channels * depth, rows, columns)
    y = make(planes, axes[1:])
    of_planes, op.rounding = op.rounding, None
    lines = reshaped(op, y, (batch, channels, depth, rows * columns), "lines")
    if isinstance(x, Padded):
        lines = Padded(lines.blob, lines.shape, (x.pad[0], 0), (x.behind[0], 0))
    op.shape = (batch, channels, count, rows * columns)
    y = make(lines, [axes[0], Axis(rows * columns, kernel=1, stride=1, begin=0, end=0, ceil=axes[0].ceil)])
    if op.rounding is not None:
        op.rounding = op.rounding.reshape(count, rows, columns)
    if of_planes is not None:
        op.rounding = of_planes if op.rounding is None else op.rounding * of_planes
    op.shape = wanted
    return reshaped(op, y, wanted, "volumes")


def _sizes(axis: Axis, front: int, behind: int) -> torch.Tensor:
    """Return of how many pixels each window is, where as many in front and behind of the image count."""
    starts = torch.arange(axis.count, dtype=torch.float64) * axis.stride - axis.begin
    return (starts + axis.kernel).clamp(max=axis.size + behind) - starts.clamp(min=-front)


def _pooled(op: Operation, x: Value, pool: str, axes: Sequence[Axis]) -> tuple[Value, Window]:
    window, firsts = _caffe_window(op, axes)
    rows, columns = window.output_size([axis.size for axis in axes])

    def make(shape: Shape) -> Value:
        op.shape = shape
        return pooled(op, unpadded(x), pool, window)

    return with_windows(op, firsts, (rows, columns), make), window


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
