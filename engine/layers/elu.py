"""ELU: a ReLU whose negative side bends towards -alpha.

    y = x where x > 0, alpha (exp(x) - 1) elsewhere   dx = dy where x > 0, alpha exp(x) dy = (y + alpha) dy elsewhere

Fields of `elu_param` (default): alpha (1).
Bottom: any shape. Top: the same; may be the bottom's blob.
No differences from Caffe. (Caffe: elu_layer.cpp; Clevert et al. 2015.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.aten import run_backward
from mgcaffe.engine.layers.shared.fields import refuse_fork_fields
from mgcaffe.engine.layers.shared.neuron import Neuron
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("ELU")
class ELU(Neuron):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Decide what to keep: with an alpha below 0 the sign of y does not tell that of x."""
        param = self.param.elu_param
        refuse_fork_fields(self, param, "elu_param", {"lambda": 1.0})
        self.alpha: float = param.alpha
        self.keeps_bottoms = self.alpha < 0
        self.keeps_tops = not self.keeps_bottoms

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory."""
        aten = torch.ops.aten
        y: torch.Tensor = aten.elu(x, self.alpha) if out is None else aten.elu_(out, self.alpha)
        return y

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute dx in one pass over memory."""
        return run_backward(torch.ops.aten.elu_backward, dy, self.alpha, 1, 1, self.keeps_tops, kept, out=out)
