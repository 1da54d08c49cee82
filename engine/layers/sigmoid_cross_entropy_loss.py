"""SigmoidCrossEntropyLoss: the cross entropy of probabilities t under a sigmoid of the scores, value by value.

    loss = sum (log(1 + exp(x)) - x t) / Z            dx = w (sigmoid(x) - t) / Z

w is the loss weight, Z as in loss.py, and values whose target, cut to an integer, is ignore_label count as 0.

Fields of `loss_param` (default): ignore_label (none); normalization (BATCH_SIZE: Z is the first axis' size, not the
number of values), and, if that is not given, normalize: true for VALID, false for BATCH_SIZE. SegNet's
weight_by_label_freqs (false) is refused, and without it its class_weighting has no effect.
Bottoms: scores x (N, ...); targets t, as many, usually 0 to 1. Top: the loss ().
No differences from Caffe. (Caffe: sigmoid_cross_entropy_loss_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layers.shared.loss import BATCH_SIZE, NormalizedLoss
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("SigmoidCrossEntropyLoss")
class SigmoidCrossEntropyLoss(NormalizedLoss):
    """The layer; see the module's text."""

    capturable = True
    default_normalization = BATCH_SIZE

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return a single number."""
        scores, targets = bottom_shapes
        if not scores or math.prod(scores) != math.prod(targets):
            self.fail(f"scores of shape {scores} need as many targets, not a bottom 1 of shape {targets}")
        return [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the bottoms and Z."""
        x = bottoms[0]
        targets = bottoms[1].reshape(x.shape)
        valid = None if self.ignore_label is None else targets.long() != self.ignore_label
        # Beyond its threshold softplus gives x itself; here it lies where that is exact in float64 as well.
        losses = torch.ops.aten.softplus(x, 1, 40).addcmul_(x, targets, value=-1)
        if valid is not None:
            losses.mul_(valid)
        divisor = self.divisor(x.shape[0], math.prod(x.shape[1:]), valid)
        if self.backward_follows:
            self.saved = (x, targets, valid, divisor)
        return [losses.sum().div_(divisor)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Only to the scores."""
        if not wanted[0]:
            return [None, None]
        x, targets, valid, divisor = self.saved
        diff = torch.sigmoid(x).sub_(targets).mul_(top_diffs[0] / divisor)
        return [diff if valid is None else diff.mul_(valid), None]
