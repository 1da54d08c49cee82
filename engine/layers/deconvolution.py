"""Deconvolution: the adjoint of a convolution; spreads each bottom pixel over the tops with learned filters.

    y[n, o, s p + d q - pad] += x[n, c, p] * W[c, o, q]  for all c, p, q;  then  y[n, o, :] += b[o]

Fields of `convolution_param`: those of Convolution, with the same defaults.
Bottoms: one or more of equal shape (N, C, in...), all with the same filters.
Tops: one for each bottom, (N, num_output, out...), out = stride (in - 1) + dilation (kernel - 1) + 1 - 2 pad.
Parameters: W (C, num_output / group, kernel...), b (num_output). The classical upsampler is num_output = group = C, a
bilinear filler and lr_mult 0.
No differences from Caffe. (Caffe: deconv_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels import convolution
from mgcaffe.engine.kernels.precision import widened
from mgcaffe.engine.layers.convolution import FilterLayer
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Deconvolution")
class Deconvolution(FilterLayer):
    """The layer; see the module's text."""

    capturable = True

    def weight_shape(self) -> Shape:
        """(C, num_output / group, kernel...)."""
        return (self.channels, self.outputs // self.geometry.groups, *self.geometry.kernel)

    def top_size(self, bottom_size: Sequence[int]) -> tuple[int, ...]:
        """Stride (in - 1) + extent - 2 pad."""
        return self.geometry.transposed_size(bottom_size)

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Run a convolution's backward pass on each bottom; keep the bottoms."""
        operands = [self.operand(x) for x in bottoms]
        self.saved = operands if self.backward_follows else None
        tops = []
        for bottom, operand in zip(bottoms, operands, strict=True):
            x = self.one_batch_axis(self.forward_operand(bottom, operand))
            size = self.top_size(x.shape[2:])
            y = convolution.backward_data(x, self.parameters[0].data, size, self.geometry, self.context.choices)
            if self.bias is not None:
                y = widened(y).add_(self.bias.view(-1, *[1] * len(size)))
            tops.append(self.all_batch_axes(y, bottom))
        return tops

    def add_weight_gradient(self, dy: torch.Tensor, x: torch.Tensor, bias: Parameter | None = None) -> None:
        """Add a convolution's, with bottom and top exchanged; the bias's comes by itself."""
        convolution.add_backward_weight(self.parameters[0], x, dy, self.geometry, self.context.choices)

    def bottom_gradient(self, dy: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
        """Run a convolution's forward pass on dy."""
        weight, choices = self.parameters[0].data, self.context.choices
        return convolution.forward(dy, weight, None, self.geometry, choices=choices)

    def macs(self, bottom_shapes: Sequence[Shape], top_shapes: Sequence[Shape]) -> int:
        """Return one filter's size for every value of the bottoms."""
        return sum(math.prod(shape) for shape in bottom_shapes) * math.prod(self.weight_shape()[1:])
