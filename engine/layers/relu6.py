"""ReLU6: cuts off what is negative and what is above 6.

    y = min(max(x, 0) + negative_slope min(x, 0), 6)
    dx = dy where 0 < x < 6, negative_slope dy where x <= 0, 0 where x >= 6

Fields of `relu6_param` (default): negative_slope (0).
Bottom: any shape. Top: the same; may be the bottom's blob.
No differences from Caffe. (MobileNet's Caffe: relu6_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.aten import run_backward
from mgcaffe.engine.layers.shared.neuron import Neuron
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape

HIGHEST = 6.0


@register("ReLU6")
class ReLU6(Neuron):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Decide what to keep: with a slope below 0 the sign of y does not tell that of x."""
        self.slope: float = self.param.relu6_param.negative_slope
        self.keeps_bottoms = self.slope < 0
        self.keeps_tops = not self.keeps_bottoms

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory, in two with a slope."""
        if self.slope == 0:
            return x.clamp(0, HIGHEST) if out is None else out.clamp_(0, HIGHEST)
        aten = torch.ops.aten
        y: torch.Tensor = aten.leaky_relu(x, self.slope) if out is None else aten.leaky_relu_(out, self.slope)
        return y.clamp_(max=HIGHEST)

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute dx in one pass over memory, in two with a slope."""
        aten = torch.ops.aten
        if self.slope == 0:
            return run_backward(aten.hardtanh_backward, dy, kept, 0.0, HIGHEST, out=out)
        dx = run_backward(aten.leaky_relu_backward, dy, kept, self.slope, self.keeps_tops, out=out)
        # With a negative slope the lower side can reach 6 as well, where y is constant.
        value = kept if self.keeps_tops else self.value(kept, None)
        return dx.mul_(value < HIGHEST)
