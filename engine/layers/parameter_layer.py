"""Parameter: a learnable blob by itself.

    y = the parameter

Fields of `parameter_param`: shape. The values begin as zeros.
No bottoms. Top: the shape.
Parameters: one, of that shape.
Differences from Caffe: a layer that works in place on the top leaves the parameter as it is, where Caffe's writes over
it. Gradients are added up, those of micro-batches (iter_size) and those of layers that share the parameter. In Caffe
the top's gradient is the parameter's own, and who reads the top replaces what was there: that of the last micro-batch
is left, and of several layers' that of the one whose reader comes first in the net. (Caffe: parameter_layer.hpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer, exactly
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Parameter")
class ParameterLayer(Layer):
    """The layer; see the module's text."""

    bottoms = exactly(0)
    keeps_bottoms = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Declare the blob."""
        shape = tuple(self.param.parameter_param.shape.dim)
        if any(size < 0 for size in shape):
            self.fail(f"the shape has a negative size, {min(shape)}", "parameter_param.shape")
        self.add_parameter(shape)

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the parameter's shape."""
        return [self.parameters[0].shape]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the parameter itself; the net lets no layer write over a blob that has no bottoms behind it."""
        return [self.parameters[0].data]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Add the top's gradient to the parameter's."""
        if self.parameters[0].wanted:
            self.parameters[0].accumulate(top_diffs[0])
        return []
