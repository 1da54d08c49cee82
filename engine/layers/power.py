"""Power: a power of a linear function.

    y = (shift + scale x)^power                       dx = power scale (shift + scale x)^(power - 1) dy

Fields of `power_param` (default): power (1), scale (1), shift (0). Where power scale is 0, y is constant and dx is 0.
Bottom: any shape. Top: the same; may be the bottom's blob.
Differences from Caffe: for powers above 0 but 1 and 2 Caffe makes dx of y / (shift + scale x), which is NaN where
shift + scale x is 0; here the formula holds there too. (Caffe: power_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layers.shared.neuron import Neuron, affine
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Power")
class Power(Neuron):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read the fields; a slope that is the same everywhere needs no bottom."""
        param = self.param.power_param
        self.power, self.scale, self.shift = param.power, param.scale, param.shift
        self.constant = self.power * self.scale == 0
        self.keeps_bottoms = not self.constant and self.power != 1

    @property
    def constant_value(self) -> float:
        """What y is everywhere, where it is constant: infinite for a negative power of 0, NaN for a root below it."""
        return float(torch.tensor(self.shift, dtype=torch.float64).pow(self.power))

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory, in two with a power."""
        if self.constant:
            return (torch.empty_like(x) if out is None else out).fill_(self.shift).pow_(self.power)
        y = affine(x, self.scale, self.shift, out)
        return y if self.power == 1 else y.pow_(self.power)

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute the slope from x."""
        if self.constant:
            return torch.zeros_like(dy)
        if self.power == 1:
            return torch.mul(dy, self.scale, out=out)
        slope = affine(kept, self.scale, self.shift)
        if self.power != 2:
            slope.pow_(self.power - 1)
        return slope.mul_(dy).mul_(self.power * self.scale)
