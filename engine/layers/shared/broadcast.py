"""What Scale and Bias share: a blob of values that stretches over some axes of the bottom.

The blob has the shape of bottom 0 from `axis` on, over `num_axes` axes, and broadcasts over all other axes. It is
learned, or it is bottom 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer, between
from mgcaffe.engine.layers.shared.fields import filler_or_constant
from mgcaffe.engine.types import Shape


class BroadcastLayer(Layer):
    """Base of the layers with such a blob.

    Attributes:
        path: the name of the layer's parameter message, which has axis, num_axes and filler.
        default_value: what a learned blob is filled with where no filler is given.
        axis: the first axis of bottom 0 that the blob covers.
        learned: the blob is a parameter.
        blob_shape: the blob's shape.
    """

    bottoms = between(1, 2)
    in_place = True

    path: str
    default_value: float
    axis: int
    learned: bool
    blob_shape: Shape

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Find the blob's axes, and declare it unless it is a bottom."""
        self.learned = len(bottom_shapes) == 1
        self._find_blob(bottom_shapes)
        if self.learned:
            filler = filler_or_constant(getattr(self.param, self.path), "filler", self.default_value)
            self.add_parameter(self.blob_shape, filler)

    def _find_blob(self, bottom_shapes: Sequence[Shape]) -> None:
        shape, message = bottom_shapes[0], getattr(self.param, self.path)
        count = message.num_axes if self.learned else len(bottom_shapes[1])
        if count < -1:
            self.fail(f"num_axes has to be -1 or more, not {count}", f"{self.path}.num_axes")
        # A single value has no place among the axes, so `axis` does not matter.
        self.axis = self.canonical_axis(message.axis, len(shape), f"{self.path}.axis") if count else 0
        end = len(shape) if count == -1 else self.axis + count
        if end > len(shape):
            blob = f"{count} axes" if self.learned else f"bottom 1, {bottom_shapes[1]},"
            self.fail(f"{blob} from axis {self.axis} on go beyond the bottom's shape {shape}", self.path)
        covered = shape[self.axis : end]
        self.blob_shape = covered if self.learned else bottom_shapes[1]
        if covered != self.blob_shape:
            self.fail(f"bottom 1 has shape {self.blob_shape}, but bottom 0 has {covered} from axis {self.axis} on")

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Bottom 0's shape."""
        known = self.blob_shape
        self._find_blob(bottom_shapes)
        if self.learned and self.blob_shape != known:
            self.fail(f"the bottom changed to shape {bottom_shapes[0]}; the parameter has shape {known}")
        return [bottom_shapes[0]]

    def per_channel(self, x: torch.Tensor) -> bool:
        """Return whether the blob is one value a channel: the common case, for which there are kernels."""
        return self.axis == 1 and len(self.blob_shape) == 1 and x.dim() > 1 and x.numel() > 0

    def stretch(self, values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the blob's values as a view that broadcasts over x."""
        return values.reshape((*self.blob_shape, *[1] * (x.dim() - self.axis - len(self.blob_shape))))

    def shrink(self, gradient: torch.Tensor) -> torch.Tensor:
        """Sum a gradient of bottom 0's shape to the blob's shape: the adjoint of `stretch`."""
        covered = range(self.axis, self.axis + len(self.blob_shape))
        others = [axis for axis in range(gradient.dim()) if axis not in covered]
        return (gradient.sum(others) if others else gradient).reshape(self.blob_shape)

    def macs(self, bottom_shapes: Sequence[Shape], top_shapes: Sequence[Shape]) -> int:
        """Return one for each value."""
        return math.prod(top_shapes[0])
