"""What losses share: one number as top, its weight as gradient, and what it is divided by.

A loss is a sum over positions divided by Z. With R ranks that train in step, every rank has its own batch of
B, and gradients and losses are averaged over the ranks. So that this equals one rank with batch R B:

    FULL        Z = positions of this rank's batch
    VALID       Z = positions that are not ignored, counted over all ranks, / R;  FULL without ignore_label
    BATCH_SIZE  Z = B
    NONE        Z = 1 / R, since the average of the ranks' sums is their sum / R

Other layers whose tops count by `loss_weight` know nothing of the ranks: a mean over the batch, as Reduction's MEAN,
is that over all ranks; a sum becomes the mean of the ranks' sums, 1 / R of what one rank with batch R B has, as in
Caffe.

Counts are at least 1. That holds in either phase of a net that trains; a net for tests knows of one rank, and counts
for itself. (Caffe: loss_layer.cpp, softmax_loss_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mgcaffe.engine.layer import Layer, exactly
from mgcaffe.engine.layers.shared.fields import refuse_fork_fields, warn_of_idle_field
from mgcaffe.engine.types import Shape

__all__ = ["BATCH_SIZE", "FULL", "NONE", "VALID", "Loss", "NormalizedLoss"]

FULL, VALID, BATCH_SIZE, NONE = 0, 1, 2, 3
_PRE_FIXED = 40003


class Loss(Layer):
    """A layer whose top 0 is a single number that counts in the net's loss. Bottom 1 holds labels."""

    bottoms = exactly(2)
    auto_tops = True
    loss_weight = 1.0

    def differentiable(self, bottom: int) -> bool:
        """Nothing flows to labels."""
        return bottom == 0


class NormalizedLoss(Loss):
    """A loss with `loss_param`: ignore_label (none), normalization, and the older normalize.

    Attributes:
        default_normalization: where the prototxt gives neither normalization nor normalize.
        smooths_labels: whether the type knows label_smoothing.
        smoothing: label_smoothing.
        normalization: FULL, VALID, BATCH_SIZE or NONE.
        ignore_label: the label whose positions count as nothing, or None.
    """

    only_once = "it counts labels over all ranks"

    default_normalization = VALID
    smooths_labels = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read `loss_param`."""
        param = self.param.loss_param
        neutral: dict[str, Any] = {"pre_fixed_normalizer": 1.0, "weight_by_label_freqs": False}
        if not self.smooths_labels:
            neutral["label_smoothing"] = 0.0
        refuse_fork_fields(self, param, "loss_param", neutral)
        if param.class_weighting:
            warn_of_idle_field(self, "loss_param.class_weighting", "without weight_by_label_freqs: true")
        self.smoothing: float = param.label_smoothing
        if not 0 <= self.smoothing < 1:
            where = "loss_param.label_smoothing"
            self.fail(f"label_smoothing has to be at least 0 and below 1, not {self.smoothing:g}", where)
        self.ignore_label: int | None = param.ignore_label if param.HasField("ignore_label") else None
        # How many positions count is read in each pass.
        self.capturable = self.capturable and self.ignore_label is None
        self.normalization = self.default_normalization
        if param.HasField("normalization"):
            self.normalization = param.normalization
        elif param.HasField("normalize"):
            self.normalization = VALID if param.normalize else BATCH_SIZE
        if self.normalization == _PRE_FIXED:
            # The fork divides by pre_fixed_normalizer, whose only value that got here is 1.
            self.normalization = NONE

    def divisor(self, outer: int, inner: int, valid: torch.Tensor | None) -> float:
        """Z, for a batch of `outer` x `inner` positions.

        Args:
            outer: positions before the class axis.
            inner: positions behind it.
            valid: which positions are not ignored; None if all count.
        """
        ranks = self.context.solver_ranks
        if self.normalization == NONE:
            return 1 / ranks
        if self.normalization == BATCH_SIZE:
            return float(max(1, outer))
        if self.normalization == FULL or valid is None:
            return float(max(1, outer * inner))
        return max(1.0, self.context.sum_over_ranks(float(valid.sum()))) / ranks
