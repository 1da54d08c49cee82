"""Threshold: tells which values are above a number.

    y = 1 where x > threshold, else 0

Fields of `threshold_param` (default): threshold (0).
Bottom: any shape. Top: the same; may be the bottom's blob. No gradient.
No differences from Caffe. (Caffe: threshold_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layers.shared.neuron import Neuron
from mgcaffe.engine.registry import register


@register("Threshold")
class Threshold(Neuron):
    """The layer; see the module's text."""

    keeps_bottoms = False

    def differentiable(self, bottom: int) -> bool:
        """Never."""
        return False

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep nothing."""
        x = bottoms[0]
        out = x if self.may_overwrite_bottom else torch.empty_like(x)
        return [torch.gt(x, self.param.threshold_param.threshold, out=out)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Nothing."""
        return [None]
