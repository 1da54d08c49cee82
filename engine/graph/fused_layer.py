"""The base of layers that run as one (`fusion.py`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.elementwise import relu_backward
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.types import Shape


class FusedLayer(Layer):
    """Layers that run as one.

    Attributes:
        members: the layers, in order.
        masks: set by `fuse`: of layers that end in a ReLU, whether backward masks the gradient by it; False where the
            pooling behind it does (`fused_pooling.py`).
    """

    masks = True

    def __init__(self, members: Sequence[Layer]) -> None:
        first = members[0]
        super().__init__(first.param, first.context, first.source)
        self.members = list(members)
        self.backward_follows = first.backward_follows
        self.only_once = next((layer.only_once for layer in members if layer.only_once), "")

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Reshape the members one after the other."""
        shapes = list(bottom_shapes)
        for layer in self.members:
            shapes = layer.reshape(shapes)
        return shapes


def through_relu(dy: torch.Tensor, y: torch.Tensor, in_place: bool) -> torch.Tensor:
    """Give dy where y, what a ReLU made, is positive, else 0."""
    return relu_backward(dy, y, dy if in_place else None)
