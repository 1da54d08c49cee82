"""Permute: puts the axes of a blob into another order.

    y[i_order[0], i_order[1], ...] = x[i_0, i_1, ...]            dx is dy with the axes put back

Fields of `permute_param`: order: the bottom's axes in the order in which the top has them, each at most once; axes that
are not named follow in their old order. Without any the top is the bottom.
Bottom: any shape. Top: its sizes in the new order.
No differences from Caffe. (SSD's Caffe: permute_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Permute")
class Permute(Layer):
    """The layer; see the module's text.

    Attributes:
        order: the bottom's axis at each place of the top.
    """

    capturable = True
    keeps_bottoms = False
    tops_share_bottoms = True

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's sizes in the new order."""
        shape = bottom_shapes[0]
        named = [int(axis) for axis in self.param.permute_param.order]
        for place, axis in enumerate(named):
            if axis >= len(shape):
                self.fail(
                    f"order names axis {axis}, but the bottom, of shape {shape}, has {len(shape)} axes",
                    "permute_param.order",
                    index=place,
                )
            if axis in named[:place]:
                self.fail(f"order names axis {axis} twice", "permute_param.order", index=place)
        self.order = [*named, *(axis for axis in range(len(shape)) if axis not in named)]
        self.shares_blobs = self.order == sorted(self.order)
        return [tuple(shape[axis] for axis in self.order)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return a view."""
        return [bottoms[0].permute(self.order)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return a view of the top's gradient."""
        if not wanted[0]:
            return [None]
        back = sorted(range(len(self.order)), key=self.order.__getitem__)
        return [top_diffs[0].permute(back)]
