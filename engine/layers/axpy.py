"""Axpy: adds one blob, weighted channel by channel, to another.

    f[n, c, p] = a[n, c] x[n, c, p] + y[n, c, p]
    da[n, c] = sum over p of df x,   dx = a df,   dy = df

No fields.
Bottoms: a (N, C) or (N, C, 1, ...); x (N, C, ...); y of x's shape. Top: x's shape.
No differences from Caffe. (SENet's Caffe: axpy_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer, exactly
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Axpy")
class Axpy(Layer):
    """The layer; see the module's text."""

    capturable = True
    bottoms = exactly(3)

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """x's shape."""
        factors, x, y = bottom_shapes
        if len(x) < 2:
            self.fail(f"bottom 1 needs a channel axis: two axes or more, not shape {x}")
        if factors[:2] != x[:2] or math.prod(factors[2:]) != 1:
            wanted = " x ".join(map(str, (*x[:2], *[1] * (len(x) - 2))))
            self.fail(
                f"bottom 0 has shape {factors}: it has to hold one factor a channel of bottom 1, that is {wanted}"
            )
        if x != y:
            self.fail(f"bottoms 1 and 2 have to be of one shape, not {x} and {y}")
        return [x]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the factors and x."""
        factors, x, y = bottoms
        factors = factors.reshape(*x.shape[:2], *[1] * (x.dim() - 2))
        self.saved = (bottoms[0].shape, factors, x) if self.backward_follows else None
        return [torch.addcmul(y, factors, x)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Compute one product each; y's gradient is the top's."""
        shape, factors, x = self.saved
        df = top_diffs[0]
        others = list(range(2, x.dim()))
        dfactors = None
        if wanted[0]:
            product = df * x
            dfactors = (product.sum(others) if others else product).reshape(shape)
        return [dfactors, df * factors if wanted[1] else None, df if wanted[2] else None]
