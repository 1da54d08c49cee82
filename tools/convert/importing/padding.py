"""Zeros around a value."""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.tools.convert.importing.axes import widened_along
from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.values import Padded, Shape, Value


def zero_padded(op: Operation, x: Value, pairs: Sequence[tuple[int, int]]) -> Value:
    """Return the value with zeros around it that the next layer has to add; `pairs` are of its last axes, in order.

    Zeros along other axes than the spatial ones are made by InnerProducts.
    """
    if not any(any(pair) for pair in pairs):
        return x
    if any(size < 0 for pair in pairs for size in pair):
        op.refuse("it pads by less than 0; a Slice cuts off")
    spatial = len(x.shape) - 2
    if any(any(pair) for pair in pairs[: max(0, len(pairs) - spatial)]):
        for axis, pair in enumerate(pairs, len(x.shape) - len(pairs)):
            x = widened_along(op, x, axis, *pair)
        return x
    given = [(0, 0)] * (spatial - len(pairs)) + list(pairs[-spatial:])
    front, behind = (tuple(pair[side] for pair in given) for side in (0, 1))
    if isinstance(x, Padded):
        front, behind = _added(front, x.pad), _added(behind, x.behind)
    return Padded(x.blob, x.shape, front, behind)


def _added(one: Shape, two: Shape) -> Shape:
    return tuple(first + second for first, second in zip(one, two, strict=True))
