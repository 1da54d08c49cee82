"""Accuracy: the share of labels whose scores are among the best.

    y = right / counted positions                     0 if nothing is counted

A position is right if fewer than top_k other classes have scores that reach the label's own: equal scores count against
it, so that a net with constant scores does not look good, and so does NaN.

Fields of `accuracy_param` (default): top_k (1), axis (1), ignore_label (none).
Bottoms: scores, any shape with that axis (N, C, ...); labels, one a position (N, 1, ...).
Tops: y (), and, if named, the same for every class by itself (C). No gradient.
Differences from Caffe: NaN among a position's scores counts against it, where Caffe lets it count for it. A label that
is no class is an error, which Caffe looks for in debug builds only.
(Caffe: accuracy_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer, between, exactly
from mgcaffe.engine.layers.shared import labels
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Accuracy")
class Accuracy(Layer):
    """The layer; see the module's text."""

    bottoms = exactly(2)
    tops = between(1, 2)
    keeps_bottoms = False

    def differentiable(self, bottom: int) -> bool:
        """Never."""
        return False

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return a single number, and one a class."""
        param, (scores, given) = self.param.accuracy_param, bottom_shapes
        self.axis = self.canonical_axis(param.axis, len(scores), "accuracy_param.axis")
        labels.check_shapes(self, scores, self.axis, given)
        self.classes = scores[self.axis]
        self.top_k: int = param.top_k
        if not 1 <= self.top_k <= self.classes:
            self.fail(
                f"top_k has to be from 1 to {self.classes}, the number of classes, not {self.top_k}",
                "accuracy_param.top_k",
            )
        return [(), (self.classes,)][: len(self.param.top)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep nothing."""
        scores, given = bottoms
        param = self.param.accuracy_param
        ignore = param.ignore_label if param.HasField("ignore_label") else None
        index, valid = labels.read_labels(self, given, scores.shape, self.axis, ignore)
        right = self._right(scores, index).to(scores.dtype)
        if valid is None and len(self.param.top) == 1 and right.numel():
            return [right.mean()]
        counted = torch.ones_like(right) if valid is None else valid.to(scores.dtype)
        right.mul_(counted)
        tops = [right.sum() / counted.sum().clamp_(min=1)]
        if len(self.param.top) > 1:
            tops.append(self._by_class(right, index) / self._by_class(counted, index).clamp_(min=1))
        return tops

    def _right(self, scores: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Return whether each position's label is among its best classes."""
        own = scores.gather(self.axis, index)
        if self.top_k == 1 < self.classes:
            # The largest of the others, found without counting, in half the time.
            return scores.scatter(self.axis, index, float("-inf")).amax(self.axis, keepdim=True) < own
        lower = (scores < own).sum(self.axis, keepdim=True, dtype=torch.int32)
        return lower >= self.classes - self.top_k

    def _by_class(self, values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Return the sum of `values` over the positions of every class."""
        return values.new_zeros(self.classes).index_add_(0, index.reshape(-1), values.reshape(-1))

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Nothing."""
        return [None, None]
