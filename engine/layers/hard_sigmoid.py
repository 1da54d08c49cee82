"""HardSigmoid: a sigmoid made of three straight lines.

    y = min(max(alpha x + beta, 0), 1)                dx = alpha dy where 0 < y < 1, else 0

Fields of `hard_sigmoid_param` (default): alpha (1/6, as in PyTorch; ONNX has 0.2); beta (0.5).
Bottom: any shape. Top: the same; may be the bottom's blob.
No differences from Caffe. (In no Caffe: Howard et al. 2019.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layers.shared.neuron import TopNeuron, affine
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("HardSigmoid")
class HardSigmoid(TopNeuron):
    """The layer; see the module's text."""

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read the fields."""
        self.alpha: float = self.param.hard_sigmoid_param.alpha
        self.beta: float = self.param.hard_sigmoid_param.beta

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Return the line, cut off at both ends."""
        return affine(x, self.alpha, self.beta, out).clamp_(0, 1)

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Return nothing from where y is cut off."""
        inside = (kept > 0).logical_and_(kept < 1)
        return torch.mul(dy, inside, out=out).mul_(self.alpha)
