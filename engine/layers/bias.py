"""Bias: adds a blob to the bottom, the same over all axes that the blob lacks.

    y = x + b

Fields of `bias_param` (default): axis (1): the first axis of bottom 0 that b covers, without meaning for a b without
axes; num_axes (1): how many it covers, -1 for all to the end, 0 for a single value; filler (constant 0). num_axes and
filler count only where b is learned.
Bottoms: x of any shape, and optionally b, of x's shape from `axis` on. Top: x's shape; may be x's blob.
Parameters: b, unless it is a bottom: x.shape[axis : axis + num_axes].
No differences from Caffe. (Caffe: bias_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layers.shared.broadcast import BroadcastLayer
from mgcaffe.engine.registry import register


@register("Bias")
class Bias(BroadcastLayer):
    """The layer; see the module's text."""

    capturable = True
    path = "bias_param"
    default_value = 0
    keeps_bottoms = False

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep nothing."""
        x = bottoms[0]
        values = self.stretch(self.parameters[0].data if self.learned else bottoms[1], x)
        return [x.add_(values) if self.may_overwrite_bottom else x + values]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Hand the gradient on, and its sums to b."""
        dy = top_diffs[0]
        dx = dy if wanted[0] else None
        if self.learned:
            if self.parameters[0].wanted:
                self.parameters[0].accumulate(self.shrink(dy))
            return [dx]
        return [dx, self.shrink(dy) if wanted[1] else None]
