"""Scale: multiplies the bottom with a blob, the same over all axes that the blob lacks; then adds another.

    y = x * s + b                                                          (b only with bias_term)

Fields of `scale_param` (default): axis (1): the first axis of bottom 0 that s covers, without meaning for an s without
axes; num_axes (1): how many it covers, -1 for all to the end, 0 for a single value; filler (constant 1); bias_term
(false); bias_filler (constant 0). num_axes and filler count only where s is learned.
Bottoms: x of any shape, and optionally s, of x's shape from `axis` on. Top: x's shape; may be x's blob.
Parameters: s, unless it is a bottom: x.shape[axis : axis + num_axes]; b with bias_term, of the same shape.
Differences from Caffe: gradients of a learned s are always added up. Where x has but one item before the axes of s
(axis 0, or a batch of one), Caffe's gradient of s replaces what was there, unless s is a single value and x has
several: with iter_size above 1 only that of the last micro-batch is left, and of layers that share s that of the first.
(Caffe: scale_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import channels
from mgcaffe.engine.layers.shared.broadcast import BroadcastLayer
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Scale")
class Scale(BroadcastLayer):
    """The layer; see the module's text.

    Attributes:
        bias: the parameter that is added, or None.
    """

    capturable = True
    path = "scale_param"
    default_value = 1
    bias: Parameter | None = None

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Declare s, unless it is a bottom, and b."""
        super().setup(bottom_shapes)
        param = self.param.scale_param
        if param.bias_term:
            self.bias = self.add_parameter(self.blob_shape, param.bias_filler)

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the bottoms."""
        x = bottoms[0]
        factor = self.parameters[0].data if self.learned else bottoms[1]
        self.saved = (x, factor) if self.backward_follows else None
        bias = self.bias.data if self.bias is not None else None
        if self.per_channel(x):
            return [channels.scale(x, factor, bias)]
        y = x * self.stretch(factor, x)
        return [y if bias is None else y.add_(self.stretch(bias, x))]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """dx = dy s; the gradients of s and b are sums of dy x and dy."""
        dy = top_diffs[0]
        x, factor = self.saved
        wants_factor = self.parameters[0].wanted if self.learned else wanted[1]
        wants_bias = self.bias is not None and self.bias.wanted
        if self.per_channel(x):
            dx, dfactor, dbias = channels.scale_backward(dy, x, factor, (wanted[0], wants_factor, wants_bias))
        else:
            dx = dy * self.stretch(factor, dy) if wanted[0] else None
            dfactor = self.shrink(dy * x) if wants_factor else None
            dbias = self.shrink(dy) if wants_bias else None
        if self.bias is not None and dbias is not None:
            self.bias.accumulate(dbias)
        if not self.learned:
            return [dx, dfactor]
        if dfactor is not None:
            self.parameters[0].accumulate(dfactor)
        return [dx]
