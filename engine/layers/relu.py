"""ReLU: cuts off what is negative, or damps it.

    y = max(x, 0) + negative_slope min(x, 0)          dx = dy where x > 0, negative_slope dy elsewhere

Fields of `relu_param` (default): negative_slope (0).
Bottom: any shape. Top: the same; may be the bottom's blob.
No differences from Caffe. (Caffe: relu_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.aten import run_backward
from mgcaffe.engine.kernels.elementwise import relu, relu_, relu_backward
from mgcaffe.engine.layers.shared.neuron import TopNeuron
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("ReLU")
class ReLU(TopNeuron):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Decide what to keep: with a slope below 0 the sign of y does not tell that of x."""
        self.slope: float = self.param.relu_param.negative_slope
        self.keeps_bottoms = self.slope < 0
        self.keeps_tops = not self.keeps_bottoms
        self.takes_narrow = self.slope == 0  # the larger of two numbers needs no rounding

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory."""
        if self.slope == 0:
            return relu(x) if out is None else relu_(out)
        aten = torch.ops.aten
        y: torch.Tensor = aten.leaky_relu(x, self.slope) if out is None else aten.leaky_relu_(out, self.slope)
        return y

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute dx in one pass over memory."""
        if self.slope == 0:
            return relu_backward(dy, kept, out)
        return run_backward(torch.ops.aten.leaky_relu_backward, dy, kept, self.slope, self.keeps_tops, out=out)
