"""Silence: reads blobs that nothing else reads, so that they are no outputs of the net.

No fields.
Bottoms: one or more of any shape. No tops. Gradients are zero.
No differences from Caffe. (Caffe: silence_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer, at_least, exactly
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Silence")
class Silence(Layer):
    """The layer; see the module's text."""

    bottoms = at_least(1)
    tops = exactly(0)
    keeps_bottoms = False

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """No tops."""
        self.shapes = list(bottom_shapes)
        return []

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Nothing."""
        return []

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return zeros."""
        context = self.context
        return [
            torch.zeros(shape, dtype=context.dtype, device=context.device) if want else None
            for shape, want in zip(self.shapes, wanted, strict=True)
        ]
