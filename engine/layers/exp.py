"""Exp: a power of a base.

    y = base^(shift + scale x)                        dx = scale log(base) y dy

Fields of `exp_param` (default): base (-1, which stands for e; else above 0), scale (1), shift (0).
Bottom: any shape. Top: the same; may be the bottom's blob.
No differences from Caffe. (Caffe: exp_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layers.shared.neuron import TopNeuron, affine
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Exp")
class Exp(TopNeuron):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Turn the base into a factor of the exponent."""
        param = self.param.exp_param
        if param.base != -1 and not 0 < param.base < math.inf:
            self.fail(f"base has to be above 0, or -1 for e, not {param.base:g}", "exp_param.base")
        logarithm = 1.0 if param.base == -1 else math.log(param.base)
        self.scale, self.shift = param.scale * logarithm, param.shift * logarithm

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory, in two with scale or shift."""
        if self.scale == 1 and self.shift == 0:
            return torch.exp(x, out=out)
        return affine(x, self.scale, self.shift, out).exp_()

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute dx in one pass over memory, in two with a scale."""
        dx = torch.mul(dy, kept, out=out)
        return dx if self.scale == 1 else dx.mul_(self.scale)
