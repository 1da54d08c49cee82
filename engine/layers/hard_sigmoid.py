"""HardSigmoid: a sigmoid made of three straight lines.

    y = min(max(alpha x + beta, 0), 1)                dx = alpha dy where 0 < y < 1, else 0

Fields of `hard_sigmoid_param` (default): alpha (1/6, as in PyTorch; ONNX has 0.2); beta (0.5).
Bottom: any shape. Top: the same; may be the bottom's blob.
No differences from Caffe. (In no Caffe: Howard et al. 2019.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.aten import run_backward
from mgcaffe.engine.layers.shared.neuron import Neuron, affine
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape

_ALPHA, _BETA = 1 / 6, 0.5  # PyTorch's operators know this line alone


@register("HardSigmoid")
class HardSigmoid(Neuron):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Read the fields."""
        param = self.param.hard_sigmoid_param
        self.alpha: float = param.alpha
        self.beta: float = param.beta
        # The operators hold 1/6 to float32's rounding, also in float64.
        is_default = abs(self.alpha - _ALPHA) < 1e-8 and self.beta == _BETA
        self.is_torchs = is_default and self.context.dtype == torch.float32

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory; with other fields in two: the line, cut off at both ends."""
        if not self.is_torchs:
            return affine(x, self.alpha, self.beta, out).clamp_(0, 1)
        aten = torch.ops.aten
        y: torch.Tensor = aten.hardsigmoid(x) if out is None else aten.hardsigmoid_(out)
        return y

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute dx in one pass over memory, with other fields in three; 0 where y is cut off."""
        aten = torch.ops.aten
        if self.is_torchs:
            return run_backward(aten.hardsigmoid_backward, dy, kept, out=out)
        line = affine(kept, self.alpha, self.beta)
        return run_backward(aten.hardtanh_backward, dy, line, 0.0, 1.0, out=out).mul_(self.alpha)
