"""AbsVal: the absolute value.

    y = |x|                                           dx = sign(x) dy, which is 0 at x = 0

No fields.
Bottom: any shape. Top: the same; may not be the bottom's blob.
No differences from Caffe. (Caffe: absval_layer.cpp.)
"""

from __future__ import annotations

import torch

from mgcaffe.engine.layers.shared.neuron import Neuron
from mgcaffe.engine.registry import register


@register("AbsVal")
class AbsVal(Neuron):
    """The layer; see the module's text."""

    capturable = True
    in_place = False

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory."""
        return torch.abs(x, out=out)

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute dx in two passes over memory."""
        return torch.mul(dy, torch.sign(kept), out=out)
