"""LayerNorm: gives every item mean 0 and variance 1 over its last axes; then scales and shifts each place.

    z = (x - mean) / sqrt(variance + eps)                          mean, biased variance: over the axes from `axis` on
    y = s z + b                                                    s only with affine, b only with bias_term as well
    g = s dy,  dx = (g - mean(g) - z mean(g z)) / sqrt(variance + eps),  ds = sum of z dy,  db = sum of dy

Fields of `layer_norm_param` (default): axis (-1): the first axis that is normalized, all behind it too; eps (1e-5);
affine (true); bias_term (true), without meaning where affine is false; scale_filler (constant 1); bias_filler
(constant 0).
Bottom: any shape with that axis. Top: the same shape.
Parameters: with affine s, of the bottom's shape from `axis` on, and with bias_term b, the same.
No differences from Caffe. (In no Caffe: Ba et al. 2016.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.shared.fields import filler_or_constant
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("LayerNorm")
class LayerNorm(Layer):
    """The layer; see the module's text.

    Attributes:
        normalized: the bottom's shape from `axis` on.
    """

    capturable = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Declare scale and bias."""
        param = self.param.layer_norm_param
        if not param.eps >= 0:
            self.fail(f"eps has to be 0 or more, not {param.eps:g}", "layer_norm_param.eps")
        self.eps: float = param.eps
        self.normalized = self._normalized(bottom_shapes[0])
        if not param.affine:
            return
        self.add_parameter(self.normalized, filler_or_constant(param, "scale_filler", 1))
        if param.bias_term:
            self.add_parameter(self.normalized, param.bias_filler)

    def _normalized(self, shape: Shape) -> Shape:
        axis = self.canonical_axis(self.param.layer_norm_param.axis, len(shape), "layer_norm_param.axis")
        if 0 in shape[axis:]:
            self.fail(f"the bottom has shape {shape}, so there is nothing to normalize")
        return shape[axis:]

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's shape."""
        normalized = self._normalized(bottom_shapes[0])
        if self.parameters and normalized != self.normalized:
            self.fail(f"the bottom changed to shape {bottom_shapes[0]}; the scale has shape {self.normalized}")
        self.normalized = normalized
        return [bottom_shapes[0]]

    def _affine(self) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        values = [parameter.data for parameter in self.parameters]
        return (values[0] if values else None), (values[1] if len(values) > 1 else None)

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the bottom and each row's statistics."""
        x = bottoms[0].contiguous()
        y, mean, inverse_std = torch.ops.aten.native_layer_norm(x, self.normalized, *self._affine(), self.eps)
        self.saved = (x, mean, inverse_std) if self.backward_follows else None
        return [y]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Take out of the gradient what mean and variance would take out."""
        x, mean, inverse_std = self.saved
        wants = [each.wanted for each in self.parameters]
        mask = [bool(wanted[0]), *wants, *[False] * (2 - len(wants))]
        if not any(mask):
            return [None]
        dx, *others = torch.ops.aten.native_layer_norm_backward(
            top_diffs[0].contiguous(), x, self.normalized, mean, inverse_std, *self._affine(), mask
        )
        for parameter, diff in zip(self.parameters, others, strict=False):
            if parameter.wanted:
                parameter.accumulate(diff)
        return [dx if wanted[0] else None]
