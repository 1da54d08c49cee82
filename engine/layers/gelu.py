"""GELU: a value times the probability that a normally distributed one is smaller.

    y = x P(x),  P(x) = (1 + erf(x / sqrt(2))) / 2                    dx = (P(x) + x p(x)) dy,  p the normal density
    with TANH: P(x) = (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, and p its derivative

Fields of `gelu_param` (default): approximate (NONE; TANH).
Bottom: any shape. Top: the same; may be the bottom's blob.
No differences from Caffe. (In no Caffe: Hendrycks and Gimpel 2016.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.aten import run_backward
from mgcaffe.engine.layers.shared.neuron import Neuron
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("GELU")
class GELU(Neuron):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read the field."""
        param = self.param.gelu_param
        self.approximate = "tanh" if param.approximate == param.TANH else "none"

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory."""
        aten, options = torch.ops.aten, {"approximate": self.approximate}
        y: torch.Tensor = aten.gelu(x, **options) if out is None else aten.gelu_(out, **options)
        return y

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute dx in one pass over memory."""
        return run_backward(torch.ops.aten.gelu_backward, dy, kept, out=out, approximate=self.approximate)
