"""EuclideanLoss: half the mean squared distance.

    loss = sum (a - b)^2 / (2 N)                      da = w (a - b) / N,  db = -da

N is the size of the first axis, w the loss weight.

No fields.
Bottoms: a (N, ...) and b, as many values. Top: the loss ().
No differences from Caffe. (Caffe: euclidean_loss_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layers.shared.loss import Loss
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("EuclideanLoss")
class EuclideanLoss(Loss):
    """The layer; see the module's text."""

    capturable = True
    keeps_bottoms = False

    def differentiable(self, bottom: int) -> bool:
        """Both bottoms are scores."""
        return True

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return a single number."""
        a, b = bottom_shapes
        if not a or not b or a[0] != b[0] or math.prod(a) != math.prod(b):
            self.fail(f"the bottoms have to be of one shape, not {a} and {b}")
        self.shapes = (a, b)
        return [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the difference."""
        a, b = bottoms
        difference = a - b.reshape(a.shape)
        self.saved = difference if self.backward_follows else None
        return [difference.square().sum().div_(2 * max(1, a.shape[0]))]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """To both bottoms."""
        scale = top_diffs[0] / max(1, self.shapes[0][0])
        scales = (scale, -scale)
        return [
            (self.saved * factor).reshape(shape) if want else None
            for factor, shape, want in zip(scales, self.shapes, wanted, strict=True)
        ]
