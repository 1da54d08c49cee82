"""ContrastiveLoss: pulls similar pairs together and pushes others apart, up to a margin.

    d = |a - b| for every pair
    loss = sum over pairs of (d^2 if similar, else max(margin - d, 0)^2) / (2 N)
    da = w / N * ((a - b) if similar, else -(a - b) max(margin - d, 0) / (d + 1e-4)),  db = -da

N is the number of pairs, w the loss weight; the 1e-4 is Caffe's, against a division by zero. With legacy_version, other
pairs cost max(margin - d^2, 0), and their da is -w / N (a - b) where that is above 0.

Fields of `contrastive_loss_param` (default): margin (1), legacy_version (false).
Bottoms: a (N, C) and b, of one shape up to axes of size 1 at its end: (N, C, 1, 1) goes with it, and (N, 1) with (N);
similarity, one value a pair, cut to an integer: 0 for a pair that is not similar.
Top: the loss ().
Differences from Caffe: members of a pair may have more axes, (N, C, ...), over all of which the distance goes.
(Caffe: contrastive_loss_layer.cpp; Hadsell et al. 2006.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import exactly
from mgcaffe.engine.layers.shared.loss import Loss
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("ContrastiveLoss")
class ContrastiveLoss(Loss):
    """The layer; see the module's text."""

    bottoms = exactly(3)
    keeps_bottoms = False
    drops_gradients = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read the fields."""
        param = self.param.contrastive_loss_param
        self.margin: float = param.margin
        self.legacy: bool = param.legacy_version

    def differentiable(self, bottom: int) -> bool:
        """Nothing flows to the similarity."""
        return bottom < 2

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return a single number."""
        a, b, similarity = bottom_shapes
        if not (a and b) or _without_ones(a) != _without_ones(b):
            self.fail(f"bottoms 0 and 1 have to be of one shape N x C, not {a} and {b}")
        if math.prod(similarity) != a[0]:
            self.fail(f"{a[0]} pairs need as many values in bottom 2, whose shape is {similarity}")
        self.shapes = (a, b)
        return [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the differences and what each pair's is multiplied with."""
        similarity, rows = bottoms[2], (self.shapes[0][0], math.prod(self.shapes[0][1:]))
        difference = bottoms[0].reshape(rows) - bottoms[1].reshape(rows)
        square = difference.square().sum(1)
        similar = similarity.reshape(-1).long() != 0
        if self.legacy:
            gap = (self.margin - square).clamp_(min=0)
            apart, factor = gap, -(gap > 0).to(gap.dtype)
        else:
            distance = square.sqrt()
            gap = (self.margin - distance).clamp_(min=0)
            apart, factor = gap.square(), -gap / (distance + 1e-4)
        if self.backward_follows:
            self.saved = (difference, torch.where(similar, torch.ones_like(factor), factor))
        return [torch.where(similar, square, apart).sum().div_(2 * max(1, rows[0]))]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """To both members of the pairs."""
        difference, factor = self.saved
        factor = factor * (top_diffs[0] / max(1, len(factor)))
        diff, (a, b) = difference * factor.unsqueeze(1), self.shapes
        return [diff.reshape(a) if wanted[0] else None, (-diff).reshape(b) if wanted[1] else None, None]


def _without_ones(shape: Shape) -> Shape:
    """Return a shape without the axes of size 1 at its end, apart from the first axis."""
    while len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    return shape
