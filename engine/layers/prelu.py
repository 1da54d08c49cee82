"""PReLU: a ReLU that learns the slope of its negative side, for every channel.

    y = max(x, 0) + a min(x, 0)
    dx = dy where x > 0, a dy elsewhere               da = sum of x dy where x <= 0

Fields of `prelu_param` (default): filler (constant 0.25), channel_shared (false): one a for all channels.
Bottom: (N, C, ...). Top: the same; may be the bottom's blob.
Parameter: a (C), or () with channel_shared.
No differences from Caffe. (Caffe: prelu_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layers.shared.fields import filler_or_constant
from mgcaffe.engine.layers.shared.neuron import Neuron
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("PReLU")
class PReLU(Neuron):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Declare the slopes."""
        param, shape = self.param.prelu_param, bottom_shapes[0]
        if len(shape) < 2:
            self.fail(f"the bottom needs two axes or more, the second one for channels; its shape is {shape}")
        self.add_parameter(() if param.channel_shared else shape[1:2], filler_or_constant(param, "filler", 0.25))

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's shape; the channels may not change."""
        channels = self.parameters[0].shape
        if channels and channels != bottom_shapes[0][1:2]:
            self.fail(f"the bottom changed to shape {bottom_shapes[0]}; there are {channels[0]} slopes")
        return super().reshape(bottom_shapes)

    def value(self, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Compute y in one pass over memory."""
        y: torch.Tensor = torch.ops.aten._prelu_kernel(x, self._slopes(x))
        return y if out is None else out.copy_(y)

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Part the gradient in those of the positive and the negative side."""
        dy, x, slopes = top_diffs[0], self.saved, self.parameters[0]
        positive = torch.ops.aten.threshold_backward(dy, x, 0)
        negative = dy - positive
        if slopes.wanted:
            others = [axis for axis in range(x.dim()) if axis != 1 or not slopes.shape]
            slopes.accumulate((negative * x).sum(others))
        return [positive.addcmul_(negative, self._slopes(x)) if wanted[0] else None]

    def _slopes(self, x: torch.Tensor) -> torch.Tensor:
        """Return the slopes as a view that broadcasts over x."""
        return self.parameters[0].data.reshape(1, -1, *[1] * (x.dim() - 2))
