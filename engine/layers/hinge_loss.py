"""HingeLoss: pushes the score of the right class above 1 and all others below -1.

    h_k = max(0, 1 - t_k x_k),  t_k = 1 for the label, -1 for every other class
    L1:  loss = sum h / N                             dx_k = -w t_k / N where h_k > 0, else 0
    L2:  loss = sum h^2 / N                           dx_k = -2 w t_k h_k / N

N is the size of the first axis, w the loss weight.

Fields of `hinge_loss_param` (default): norm (L1).
Bottoms: scores x (N, ...), of which all but the first axis count as classes; labels, N. Top: the loss ().
Differences from Caffe: with loss_weight 0, beside another loss of the same scores, the scores' gradient is that of the
other loss. In Caffe the forward pass keeps h in the memory of this layer's gradient, backward passes over the layer,
and the Split of the scores adds h to their gradient. (Caffe: hinge_loss_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layers.shared import labels
from mgcaffe.engine.layers.shared.loss import Loss
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape

L1, L2 = 1, 2


@register("HingeLoss")
class HingeLoss(Loss):
    """The layer; see the module's text."""

    keeps_bottoms = False

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return a single number."""
        scores, given = bottom_shapes
        self.shape = scores
        self.rows = (scores[0] if scores else 1, math.prod(scores[1:]))
        labels.check_one_each(self, scores, given)
        return [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the classes' sides t and what each is short of its own."""
        x = bottoms[0].reshape(self.rows)
        index, _ = labels.read_labels(self, bottoms[1], x.shape, 1, None)
        side = torch.full_like(x, -1).scatter_(1, index, 1)
        short = (1 - side * x).clamp_(min=0)
        self.saved = (side, short) if self.backward_follows else None
        total = short.sum() if self.param.hinge_loss_param.norm == L1 else short.square().sum()
        return [total.div_(max(1, self.rows[0]))]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Only to the scores."""
        if not wanted[0]:
            return [None, None]
        side, short = self.saved
        slope = torch.sign(short) if self.param.hinge_loss_param.norm == L1 else short * 2
        scale = top_diffs[0] / -max(1, self.rows[0])
        return [slope.mul_(side).mul_(scale).reshape(self.shape), None]
