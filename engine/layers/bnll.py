"""BNLL: the binomial normal log-likelihood, a smooth ReLU.

    y = log(1 + exp(x))                               dx = dy / (1 + exp(-x)) = (1 - exp(-y)) dy

No fields. Bottom: any shape. Top: the same; may be the bottom's blob. (Caffe: bnll_layer.cpp.)
"""

from __future__ import annotations

import torch

from mgcaffe.engine.layers.neuron import TopNeuron
from mgcaffe.engine.registry import register

# Above it y is x to the last bit of a double.
_STRAIGHT = 40


@register("BNLL")
class BNLL(TopNeuron):
    """The layer; see the module's text."""

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """One pass."""
        y: torch.Tensor = torch.ops.aten.softplus(x, 1, _STRAIGHT)
        return y if out is None else out.copy_(y)

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """From y, without a loss of digits where it is small."""
        return torch.mul(dy, torch.expm1(-kept).neg_(), out=out)
