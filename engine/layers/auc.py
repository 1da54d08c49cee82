"""AUC: how probable it is that a positive item has a higher score than a negative one; the area under the ROC curve.

    y = (pairs in which the positive item has the higher score + 1/2 of those with equal scores) / all pairs
                                                      pairs of a positive and a negative item; NaN if there are none

In a test this is over the items of all batches on all ranks, exactly; otherwise over those of the batch. Logits and
probabilities have the same order, and so the same AUC, as long as they are not rounded to equal ones.

No fields.
Bottoms: scores, any shape; labels, 0 or 1, as many.
Top: y (). No gradient.
No differences from Caffe. (In no Caffe: the statistic of Mann and Whitney, 1947.)
"""

from __future__ import annotations

import math

import numpy as np
import torch

from mgcaffe.engine.layers.shared.pass_metric import PassMetric, Statistics
from mgcaffe.engine.registry import register


@register("AUC")
class AUC(PassMetric):
    """The layer; see the module's text. A row of statistics is an item's score and label."""

    columns = 2

    def statistics(self, predictions: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return all scores and labels."""
        return torch.stack([predictions, labels.to(predictions.dtype)], 1)

    def score(self, statistics: Statistics) -> float:
        """Count the pairs, in whole numbers."""
        scores, labels = statistics.T
        if np.isnan(scores).any():
            return math.nan
        values, place = np.unique(scores, return_inverse=True)
        positives = np.bincount(place[labels > 0], minlength=len(values))
        negatives = np.bincount(place[labels == 0], minlength=len(values))
        pairs = int(positives.sum()) * int(negatives.sum())
        if not pairs:
            return math.nan
        twice_won = int((positives * (2 * np.cumsum(negatives) - negatives)).sum())
        return twice_won / (2 * pairs)
