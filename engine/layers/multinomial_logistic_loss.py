"""MultinomialLogisticLoss: the negative log-likelihood of the labels under given probabilities.

    loss = -sum over items of log(max(p_label, 1e-20)) / N
    dp_k = -w / (N max(p_k, 1e-20)) for k = label, else 0

N is the size of the first axis, w the loss weight. For scores rather than probabilities take SoftmaxWithLoss, which is
the more exact.

No fields.
Bottoms: probabilities p (N, ...), of which all but the first axis count as classes; labels, N. Top: the loss ().
No differences from Caffe. (Caffe: multinomial_logistic_loss_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layers.shared import labels
from mgcaffe.engine.layers.shared.loss import Loss
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape

MIN_PROBABILITY = 1e-20


@register("MultinomialLogisticLoss")
class MultinomialLogisticLoss(Loss):
    """The layer; see the module's text."""

    keeps_bottoms = False

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return a single number."""
        probabilities, given = bottom_shapes
        self.shape = probabilities
        self.rows = (probabilities[0] if probabilities else 1, math.prod(probabilities[1:]))
        labels.check_one_each(self, probabilities, given)
        return [()]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the labels' probabilities."""
        rows = bottoms[0].reshape(self.rows)
        index, _ = labels.read_labels(self, bottoms[1], rows.shape, 1, None)
        chosen = rows.gather(1, index).clamp_(min=MIN_PROBABILITY)
        self.saved = (chosen, index) if self.backward_follows else None
        return [chosen.log().sum().div_(-max(1, self.rows[0])).add_(0)]  # 0, as in Caffe, not -0

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Only to the probabilities."""
        if not wanted[0]:
            return [None, None]
        chosen, index = self.saved
        scale = top_diffs[0] / -max(1, self.rows[0])
        return [chosen.new_zeros(self.rows).scatter_(1, index, scale / chosen).reshape(self.shape), None]
