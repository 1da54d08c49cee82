"""NormalizedEntropy: the mean log loss of predictions, over that of always predicting the share of positive items.

    y = (sum of losses) / -(P log p + M log(1 - p))       P positive and M negative items, p = P / (P + M)
    loss of an item = -log q if it is positive, -log(1 - q) if not;  q between 1e-12 and 1 - 1e-12

Below 1 the predictions are better than the base rate. In a test y is over the items of all batches on all ranks;
otherwise over those of the batch. NaN where all items are of one kind. The sums are in float64.

Fields of `normalized_entropy_param` (default): predictions (LOGIT): q = 1 / (1 + exp(-x)); PROBABILITY: q = x.
Bottoms: predictions x, any shape; labels, 0 or 1, as many.
Top: y (). No gradient.
No differences from Caffe. (In no Caffe: He et al., Practical Lessons from Predicting Clicks on Ads at Facebook, 2014.)
"""

from __future__ import annotations

import math

import torch

from mgcaffe.engine.layers.shared.pass_metric import PassMetric, Statistics
from mgcaffe.engine.registry import register

LEAST = 1e-12


@register("NormalizedEntropy")
class NormalizedEntropy(PassMetric):
    """The layer; see the module's text. A row of statistics is a sum of losses and the numbers of both kinds."""

    columns = 3

    def statistics(self, predictions: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the sums of a batch."""
        param = self.param.normalized_entropy_param
        q = predictions.double()
        if param.predictions == param.LOGIT:
            q = torch.sigmoid(q)
        q = q.clamp(LEAST, 1 - LEAST)
        right = torch.where(labels > 0, q, 1 - q)
        positives = labels.sum().double()
        return torch.stack([-right.log().sum(), positives, len(labels) - positives]).reshape(1, 3)

    def score(self, statistics: Statistics) -> float:
        """Divide the sums."""
        losses, positives, negatives = statistics.sum(axis=0).tolist()
        if not positives or not negatives:
            return math.nan
        count = positives + negatives
        base = -(positives * math.log(positives / count) + negatives * math.log(negatives / count))
        return float(losses / base)
