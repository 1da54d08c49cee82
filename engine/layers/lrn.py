"""LRN: divides each value by a power of the energy around it.

    ACROSS_CHANNELS:  scale = k + alpha / local_size * sum of x^2 over local_size neighbouring channels
    WITHIN_CHANNEL:   scale = 1 + alpha * mean of x^2 over local_size x local_size pixels   (k is not used)
    y = x * scale^-beta                                   (x is 0 outside the image and outside the channels)
    dx_i = scale_i^-beta dy_i - 2 alpha beta / n x_i sum over j of y_j dy_j / scale_j

The sum is over the places j whose scale x_i is part of; n is local_size, or local_size^2 within a channel.

Fields of `lrn_param` (default): local_size (5, odd); alpha (1); beta (0.75); k (1); norm_region (ACROSS_CHANNELS).
Bottom: (N, C, H, W). Top: the same shape.
Differences from Caffe: it is refused in place. In Caffe's CPU code x has then been written over with scale^-beta when
it is multiplied with that (y = scale^(-2 beta)); on a GPU y is right, and dx reads y as x. (Caffe: lrn_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import lrn
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.shared.fields import refuse_empty_images
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("LRN")
class LRN(Layer):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the window."""
        param = self.param.lrn_param
        if param.local_size % 2 == 0:
            self.fail(f"local_size has to be odd, not {param.local_size}", "lrn_param.local_size")
        self.across = param.norm_region == param.ACROSS_CHANNELS
        self.size, self.alpha, self.beta, self.k = param.local_size, param.alpha, param.beta, param.k

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's shape."""
        if len(bottom_shapes[0]) != 4:
            self.fail(f"the bottom needs 4 axes (N, C, H, W), not shape {bottom_shapes[0]}")
        refuse_empty_images(self, bottom_shapes[0])
        return [bottom_shapes[0]]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the bottom and the scale."""
        x = bottoms[0]
        if self.across:
            y, scale = lrn.across_forward(x, self.size, self.alpha, self.beta, self.k)
        else:
            y, scale = lrn.within_forward(x, self.size, self.alpha, self.beta)
        self.saved = (x, scale) if self.backward_follows else None
        return [y]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the derivative through the value itself and through its neighbours' scales."""
        if not wanted[0]:
            return [None]
        dy, (x, scale) = top_diffs[0], self.saved
        if self.across:
            overwrite = self.may_overwrite_top_diff[0]
            return [lrn.across_backward(dy, x, scale, self.size, self.alpha, self.beta, overwrite)]
        return [lrn.within_backward(dy, x, scale, self.size, self.alpha, self.beta)]
