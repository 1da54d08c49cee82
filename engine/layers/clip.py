"""Clip: keeps values within an interval.

    y = min(max(x, min), max)                         dx = dy where min <= x <= max, else 0

Fields of `clip_param`: min, max, both required.
Bottom: any shape. Top: the same; may be the bottom's blob.
No differences from Caffe. (Caffe: clip_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layers.shared.neuron import Neuron
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape
from mgcaffe.prototxt import has_field


@register("Clip")
class Clip(Neuron):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the interval."""
        param = self.param.clip_param
        for field in ("min", "max"):
            if not has_field(param, field):
                self.fail(f"clip_param needs {field}", "clip_param")
        if param.min > param.max:
            self.fail(f"min {param.min:g} is more than max {param.max:g}", "clip_param.min")
        self.low, self.high = param.min, param.max

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory."""
        return torch.clamp(x, self.low, self.high, out=out)

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Hand dy on inside the interval, to which its ends belong."""
        inside = (kept >= self.low).logical_and_(kept <= self.high)
        return torch.mul(dy, inside, out=out)
