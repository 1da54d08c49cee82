"""Split: gives one blob to several layers. The net inserts it where a blob has more than one reader.

    y_i = x                                           dx = dy_0 + dy_1 + ...

No fields.
Bottom: any shape. Tops: the same blob under other names.
Differences from Caffe: a loss that a layer reads gets a Split also where its loss_weight is not written out, so that it
goes on counting with its weight of 1. Caffe splits it only with a written loss_weight (or a second reader); else the
reader's gradient takes the weight's place.
(Caffe: split_layer.cpp, insert_splits.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.elementwise import add_
from mgcaffe.engine.kernels.precision import widened
from mgcaffe.engine.layer import Layer, at_least
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Split")
class Split(Layer):
    """The layer; see the module's text."""

    keeps_others = False
    capturable = True
    diffs_share_tops = True
    tops = at_least(1)
    keeps_bottoms = False
    tops_share_bottoms = True
    shares_blobs = True
    takes_narrow = True

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's shape for every top."""
        return [bottom_shapes[0]] * len(self.param.top)

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep nothing."""
        return [bottoms[0]] * len(self.param.top)

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Add up in Caffe's order, in one of the gradients if that is allowed."""
        if not wanted[0]:
            return [None]
        if len(top_diffs) == 1:
            # A net that keeps its blobs keeps these gradients apart, as Caffe does.
            return [top_diffs[0] if self.context.frees_blobs else top_diffs[0].clone()]
        first, second = top_diffs[:2]
        if len(top_diffs) > 2 or first.dtype != second.dtype:
            # In 16 bits only a sum of two, which is rounded once. What is widened is new: nobody else reads it.
            first, second = widened(first), widened(second)
        if self.may_overwrite_top_diff[0] or first is not top_diffs[0]:
            total = add_(first, second)
        elif self.may_overwrite_top_diff[1] or second is not top_diffs[1]:
            total = add_(second, first)
        else:
            total = first + second
        for diff in top_diffs[2:]:
            total.add_(diff)
        return [total]
