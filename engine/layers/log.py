"""Log: the logarithm of a linear function.

    y = log(shift + scale x) / log(base)              dx = scale / (log(base) (shift + scale x)) dy

Fields of `log_param` (default): base (-1, which stands for e; else above 0 and not 1), scale (1), shift (0).
Bottom: any shape. Top: the same; may be the bottom's blob.
No differences from Caffe. (Caffe: log_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layers.shared.neuron import Neuron, affine
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Log")
class Log(Neuron):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Turn the base into a factor of the logarithm."""
        param = self.param.log_param
        if param.base != -1 and (not 0 < param.base < math.inf or param.base == 1):
            self.fail(f"base has to be above 0 and not 1, or -1 for e, not {param.base:g}", "log_param.base")
        self.factor = 1.0 if param.base == -1 else 1 / math.log(param.base)
        self.scale, self.shift = param.scale, param.shift
        self._is_plain = self.scale == 1 and self.shift == 0

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory, another for scale or shift, and another for a base."""
        y = torch.log(x, out=out) if self._is_plain else affine(x, self.scale, self.shift, out).log_()
        return y if self.factor == 1 else y.mul_(self.factor)

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute the logarithm's argument again."""
        argument = kept if self._is_plain else affine(kept, self.scale, self.shift)
        dx = torch.div(dy, argument, out=out)
        factor = self.scale * self.factor
        return dx if factor == 1 else dx.mul_(factor)
