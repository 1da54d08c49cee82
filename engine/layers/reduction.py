"""Reduction: one number for everything behind an axis.

    SUM:    y = coeff sum x                           dx = coeff dy
    ASUM:   y = coeff sum |x|                         dx = coeff sign(x) dy
    SUMSQ:  y = coeff sum x^2                         dx = 2 coeff x dy
    MEAN:   y = coeff / n sum x                       dx = coeff / n dy

The sums run over the n values from `axis` to the end.

Fields of `reduction_param` (default): operation (SUM); axis (0), counted from the end if negative; coeff (1).
Bottom: any shape with that axis. Top: its axes before `axis`.
No differences from Caffe. (Caffe: reduction_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape

SUM, ASUM, SUMSQ, MEAN = 1, 2, 3, 4


@register("Reduction")
class Reduction(Layer):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Decide what to keep: a sum's slope is the same everywhere."""
        self.operation: int = self.param.reduction_param.operation
        self.keeps_bottoms = self.operation in (ASUM, SUMSQ)

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the axes that stay."""
        param, self.shape = self.param.reduction_param, bottom_shapes[0]
        axis = self.canonical_axis(param.axis, len(self.shape), "reduction_param.axis")
        self.stays, summed = self.shape[:axis], self.shape[axis:]
        self.summed_axes = tuple(range(axis, len(self.shape)))
        self.spread_shape = (*self.stays, *[1] * len(summed))
        self.factor: float = param.coeff / max(1, math.prod(summed)) if self.operation == MEAN else param.coeff
        return [self.stays]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the bottom, where the slope needs it."""
        x = bottoms[0]
        self.saved = x if self.keeps_bottoms and self.backward_follows else None
        if self.operation == ASUM:
            x = x.abs()
        elif self.operation == SUMSQ:
            x = x.square()
        y = x.sum(self.summed_axes)
        return [y if self.factor == 1 else y.mul_(self.factor)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Spread every number over what it was computed from."""
        if not wanted[0]:
            return [None]
        dy = top_diffs[0] if self.factor == 1 else top_diffs[0] * self.factor
        dy = dy.reshape(self.spread_shape)
        if self.operation == ASUM:
            return [self.saved.sign().mul_(dy)]
        if self.operation == SUMSQ:
            return [(self.saved * 2).mul_(dy)]
        return [dy.new_empty(self.shape).copy_(dy)]
