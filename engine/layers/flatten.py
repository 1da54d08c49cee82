"""Flatten: makes one axis of several.

    y = x, with the axes from `axis` to `end_axis` made into one

Fields of `flatten_param` (default): axis (1), end_axis (-1, which is included); both are counted from the end if
negative.
Bottom: any shape with these axes. Top: its values in the same order.
No differences from Caffe. (Caffe: flatten_layer.cpp.)
"""

from __future__ import annotations

import math

from mgcaffe.engine.layers.reshape import Reshaping
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Flatten")
class Flatten(Reshaping):
    """The layer; see the module's text."""

    capturable = True

    def new_shape(self, shape: Shape) -> Shape:
        """Return the shape with one axis in place of the flattened ones."""
        param = self.param.flatten_param
        start = self.canonical_axis(param.axis, len(shape), "flatten_param.axis")
        end = self.canonical_axis(param.end_axis, len(shape), "flatten_param.end_axis") + 1
        if end < start:
            self.fail(f"end_axis {param.end_axis} lies before axis {param.axis}", "flatten_param.end_axis")
        return (*shape[:start], math.prod(shape[start:end]), *shape[end:])
