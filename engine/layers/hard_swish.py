"""HardSwish: a value times its own hard sigmoid.

    y = x min(max(x + 3, 0), 6) / 6
    dx = dy where x > 3, (x / 3 + 1/2) dy where -3 <= x <= 3, 0 where x < -3

No fields.
Bottom: any shape. Top: the same; may be the bottom's blob.
No differences from Caffe. (In no Caffe: Howard et al. 2019.)
"""

from __future__ import annotations

import torch

from mgcaffe.engine.layers.shared.neuron import Neuron
from mgcaffe.engine.registry import register


@register("HardSwish")
class HardSwish(Neuron):
    """The layer; see the module's text."""

    capturable = True

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory."""
        aten = torch.ops.aten
        y: torch.Tensor = aten.hardswish(x) if out is None else aten.hardswish_(out)
        return y

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute dx in one pass over memory; the operator has no form that writes over dy."""
        dx: torch.Tensor = torch.ops.aten.hardswish_backward(dy, kept)
        return dx if out is None else out.copy_(dx)
