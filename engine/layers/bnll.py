"""BNLL: the binomial normal log-likelihood, a smooth ReLU.

    y = log(1 + exp(x))                               dx = dy / (1 + exp(-x))

No fields.
Bottom: any shape. Top: the same; may be the bottom's blob.
No differences from Caffe. (Caffe: bnll_layer.cpp.)
"""

from __future__ import annotations

import torch

from mgcaffe.engine.kernels.aten import run_backward
from mgcaffe.engine.layers.shared.neuron import Neuron
from mgcaffe.engine.registry import register

# Above it y is x to the last bit of a double.
_STRAIGHT = 40


@register("BNLL")
class BNLL(Neuron):
    """The layer; see the module's text."""

    capturable = True

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory."""
        y: torch.Tensor = torch.ops.aten.softplus(x, 1, _STRAIGHT)
        return y if out is None else out.copy_(y)

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """From x: from y it would need expm1, which costs twice as much."""
        return run_backward(torch.ops.aten.softplus_backward, dy, kept, 1, _STRAIGHT, out=out)
