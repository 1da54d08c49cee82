"""TanH: the hyperbolic tangent.

    y = tanh(x)                                       dx = (1 - y^2) dy

No fields.
Bottom: any shape. Top: the same; may be the bottom's blob.
No differences from Caffe. (Caffe: tanh_layer.cpp.)
"""

from __future__ import annotations

import torch

from mgcaffe.engine.kernels.aten import run_backward
from mgcaffe.engine.layers.shared.neuron import TopNeuron
from mgcaffe.engine.registry import register


@register("TanH")
class TanH(TopNeuron):
    """The layer; see the module's text."""

    capturable = True

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory."""
        return torch.tanh(x, out=out)

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute dx in one pass over memory."""
        return run_backward(torch.ops.aten.tanh_backward, dy, kept, out=out)
