"""DepthwiseConvolution, ConvolutionDepthwise: correlates each channel with a filter of its own.

    y[n, c, p] = b[c] + sum over q of  x[n, c, s p + d q - pad] * W[c, 0, q]      (x is 0 outside the image)

The same as a Convolution with group and num_output equal to the bottom's channels.

Fields of `convolution_param`: as for Convolution. group: the number of channels, or not given; num_output likewise.
Bottoms: one or more of equal shape (N, C, in...). Tops: one for each, (N, C, out...), sizes as for Convolution.
Parameters: W (C, 1, kernel...), b (C).
Differences from Caffe: depthwise_conv_layer.cpp has no meaning for other groups than channels, conv_dw_layer.cpp
ignores both numbers; here others are errors.
(MobileNet's Caffes: depthwise_conv_layer.cpp, conv_dw_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.engine.layers.convolution import Convolution
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape
from mgcaffe.prototxt import has_field


@register("DepthwiseConvolution")
class DepthwiseConvolution(Convolution):
    """The layer; see the module's text."""

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Set what is not given to the number of channels, then as for Convolution."""
        param, shape = self.param.convolution_param, bottom_shapes[0]
        axis = self.canonical_axis(param.axis, len(shape), "convolution_param.axis")
        channels = shape[axis]
        for name in ("group", "num_output"):
            if has_field(param, name) and getattr(param, name) != channels:
                self.fail(
                    f"{name} is {getattr(param, name)}, but the bottom has {channels} channels, each with one filter",
                    f"convolution_param.{name}",
                    hint=f"remove {name}, or make the layer a Convolution",
                )
        full = type(self.param)()
        full.CopyFrom(self.param)
        full.convolution_param.group = full.convolution_param.num_output = channels
        given, self.param = self.param, full
        try:
            super().setup(bottom_shapes)
        finally:
            # What is written into snapshots is what the user gave.
            self.param = given


@register("ConvolutionDepthwise")
class ConvolutionDepthwise(DepthwiseConvolution):
    """The same under its other name."""

    capturable = True
