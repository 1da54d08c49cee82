"""Swish: a value times its own sigmoid.

    y = x s,  s = 1 / (1 + exp(-beta x))              dx = s (1 + beta x (1 - s)) dy

Fields of `swish_param` (default): beta (1); 0 makes it x / 2.
Bottom: any shape. Top: the same; may be the bottom's blob.
No differences from Caffe. (Caffe: swish_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.aten import run_backward
from mgcaffe.engine.layers.shared.neuron import Neuron
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Swish")
class Swish(Neuron):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read the field."""
        self.beta: float = self.param.swish_param.beta

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute the sigmoid, then the product; with beta 1 both in one pass over memory."""
        if self.beta == 1:
            y: torch.Tensor = torch.ops.aten.silu(x) if out is None else torch.ops.aten.silu_(out)
            return y
        gate = self._stretched(x).sigmoid()
        return torch.mul(x, gate, out=gate if out is None else out)

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Multiply by the slope at x, which is that of a Swish with beta 1 at beta x."""
        return run_backward(torch.ops.aten.silu_backward, dy, self._stretched(kept), out=out)

    def _stretched(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.beta == 1 else x * self.beta
