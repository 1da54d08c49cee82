"""Softmax: turns scores into probabilities.

    y_k = exp(x_k) / sum_j exp(x_j)                   dx_k = y_k (dy_k - sum_j y_j dy_j)          j along `axis`

Fields of `softmax_param` (default): axis (1).
Bottom: any shape with that axis. Top: the same; may be the bottom's blob.
No differences from Caffe. (Caffe: softmax_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.softmax import softmax, softmax_backward
from mgcaffe.engine.layers.shared.neuron import TopNeuron
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Softmax")
class Softmax(TopNeuron):
    """The layer; see the module's text."""

    capturable = True

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's shape."""
        rank = len(bottom_shapes[0])
        self.axis = self.canonical_axis(self.param.softmax_param.axis, rank, "softmax_param.axis")
        return super().reshape(bottom_shapes)

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute the probabilities; no operator writes them over the scores."""
        y = softmax(x, self.axis)
        return y if out is None else out.copy_(y)

    def gradient(self, dy: torch.Tensor, kept: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute dx in one pass over memory."""
        return softmax_backward(dy, kept, self.axis)
