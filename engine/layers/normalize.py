"""Normalize: scales each position, or each image, to the same Euclidean length, and by a learned factor.

    y = s x / norm                  norm = sqrt(sum of x^2 + eps), the sum over the channels of each position,
                                    or with across_spatial over the whole image
    dx = (g - x sum(g x) / norm^2) / norm                                with g = s dy, the sum as in the norm
    ds = sum of dy x / norm, over everything that shares the factor

Fields of `norm_param` (default): across_spatial (true); channel_shared (true): one factor for all channels, not one
each; scale_filler (constant 1); eps (1e-10).
Bottom: (N, C, ...), two axes or more. Top: the same shape.
Parameter: s () or, without channel_shared, (C).
Differences from Caffe: with a factor for each channel, SSD's gradient for x leaves the factors out of the sum, which is
wrong unless they are equal; this one is the derivative.
(SSD's Caffe: normalize_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.shared.fields import filler_or_constant, refuse_missing_channels
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Normalize")
class Normalize(Layer):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Declare the factors."""
        param, shape = self.param.norm_param, bottom_shapes[0]
        refuse_missing_channels(self, shape)
        if not param.eps >= 0:
            self.fail(f"eps has to be 0 or more, not {param.eps:g}", "norm_param.eps")
        self.eps: float = param.eps
        self.add_parameter(() if param.channel_shared else shape[1:2], filler_or_constant(param, "scale_filler", 1))

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's shape."""
        shape = bottom_shapes[0]
        refuse_missing_channels(self, shape)
        channels = self.parameters[0].shape
        if channels and channels != shape[1:2]:
            self.fail(f"the bottom changed to shape {shape}; there are {channels[0]} factors")
        self.summed = list(range(1, len(shape))) if self.param.norm_param.across_spatial else [1]
        return [shape]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep x and the norms."""
        x = bottoms[0]
        inverse = x.square().sum(self.summed, keepdim=True).add_(self.eps).rsqrt_()
        self.saved = (x, inverse) if self.backward_follows else None
        return [(x * inverse).mul_(self._factors(x))]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Take out of the gradient what changes the length only, which has no effect."""
        dy, (x, inverse), factors = top_diffs[0], self.saved, self.parameters[0]
        product = dy * x
        if factors.wanted:
            others = [axis for axis in range(x.dim()) if axis != 1 or not factors.shape]
            factors.accumulate((product * inverse).sum(others))
        if not wanted[0]:
            return [None]
        along = product.mul_(self._factors(x)).sum(self.summed, keepdim=True)
        dx = (dy * self._factors(x)).addcmul_(x, along * inverse.square(), value=-1)
        return [dx.mul_(inverse)]

    def _factors(self, x: torch.Tensor) -> torch.Tensor:
        """Return the factors as a view that broadcasts over x."""
        return self.parameters[0].data.reshape(1, -1, *[1] * (x.dim() - 2))
