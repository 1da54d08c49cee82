"""Zeros around a value, or its own values again."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.tools.convert.importing.axes import check_size, multiplied, widened_along
from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.values import Padded, Shape, Value


def zero_padded(op: Operation, x: Value, pairs: Sequence[tuple[int, int]], *, by_next: bool) -> Value:
    """Return the value with zeros around it; `pairs` are of its last axes, in order.

    Args:
        op: the operator.
        x: the value.
        pairs: how many zeros are in front and behind.
        by_next: all that reads the result can add zeros around an image by itself; else, and along other axes than the
            spatial ones, InnerProducts make them.
    """
    if not any(any(pair) for pair in pairs):
        return x
    if any(size < 0 for pair in pairs for size in pair):
        op.refuse("it pads by less than 0; a Slice cuts off")
    spatial = len(x.shape) - 2
    if any(any(pair) for pair in pairs[: max(0, len(pairs) - spatial)]):
        x = _with_zeros(op, x)
        for axis, pair in enumerate(pairs, len(x.shape) - len(pairs)):
            x = widened_along(op, x, axis, *pair)
        return x
    given = [(0, 0)] * (spatial - len(pairs)) + list(pairs[-spatial:])
    front, behind = (tuple(pair[side] for pair in given) for side in (0, 1))
    if isinstance(x, Padded):
        front, behind = _added(front, x.pad), _added(behind, x.behind)
    padded = Padded(x.blob, x.shape, front, behind)
    return padded if by_next else _with_zeros(op, padded)


def padded_with_own(op: Operation, x: Value, pairs: Sequence[tuple[int, int]], mode: str) -> Value:
    """Return the value with its own values again around it, which InnerProducts with ones and zeros put there (frozen).

    Args:
        op: the operator.
        x: the value.
        pairs: how many are in front and behind, of its last axes, in order.
        mode: PyTorch's: reflect, replicate or circular.
    """
    x = _with_zeros(op, x)
    for axis, (front, behind) in enumerate(pairs, len(x.shape) - len(pairs)):
        if not front and not behind:
            continue
        if axis == 0 and op.first_is_batch:
            op.refuse("it pads the batch axis, which no layer does")
        size = x.shape[axis]
        most = {"reflect": size - 1, "circular": size}.get(mode, max(front, behind))
        if min(front, behind) < 0 or max(front, behind) > most:
            op.refuse(f"it puts {front} and {behind} values around {size} of them ({mode})")
        check_size(op, size + front + behind, size)
        places = torch.arange(-front, size + behind)
        if mode == "circular":
            places = places % size
        elif mode == "replicate":
            places = places.clamp(0, size - 1)
        else:
            places = size - 1 - (size - 1 - places.abs()).abs()
        x = multiplied(op, x, axis, torch.eye(size)[places], f"{mode}{axis}")
    return x


def _with_zeros(op: Operation, x: Value) -> Value:
    """Return a value with the zeros around it that the next layer was to add, which InnerProducts put there."""
    if not isinstance(x, Padded):
        return x
    y = Value(x.blob, x.shape)
    for axis, pair in enumerate(zip(x.pad, x.behind, strict=True), 2):
        y = widened_along(op, y, axis, *pair)
    return y


def _added(one: Shape, two: Shape) -> Shape:
    return tuple(first + second for first, second in zip(one, two, strict=True))
