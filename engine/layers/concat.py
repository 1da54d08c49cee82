"""Concat: joins blobs along one axis.

    y = x_0, x_1, ... one after the other along `axis`

Fields of `concat_param` (default): axis (1), counted from the end if negative; concat_dim: the same in old files.
Bottoms: one or more, alike but for that axis.
Top: the same with the sum of their sizes. A single bottom is handed on as it is.
No differences from Caffe. (Caffe: concat_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer, at_least
from mgcaffe.engine.layers.shared.fields import four_axes_hint, joining_axis
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Concat")
class Concat(Layer):
    """The layer; see the module's text."""

    keeps_others = False
    capturable = True
    diffs_share_tops = True
    bottoms = at_least(1)
    keeps_bottoms = False
    takes_narrow = True

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Note whether the top is the bottom itself: a single one is not copied."""
        self.tops_share_bottoms = self.shares_blobs = len(bottom_shapes) == 1

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the common shape, with the sum of the sizes along the axis."""
        first = bottom_shapes[0]
        self.axis = axis = joining_axis(self, "concat_param", "concat_dim", len(first))
        before, behind = first[:axis], first[axis + 1 :]
        self.sizes = [shape[axis] if axis < len(shape) else 0 for shape in bottom_shapes]
        for index, shape in enumerate(bottom_shapes):
            if len(shape) != len(first) or shape[:axis] != before or shape[axis + 1 :] != behind:
                names = self.bottom_names
                self.fail(
                    f"the bottoms may differ along axis {axis} only: bottom 0 ('{names[0]}') has shape {first},"
                    f" bottom {index} ('{names[index]}') has {shape}",
                    "bottom",
                    index=index,
                    hint=four_axes_hint(bottom_shapes, names, index),
                )
        return [(*before, sum(self.sizes), *behind)]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep nothing."""
        return [bottoms[0] if len(bottoms) == 1 else torch.cat(list(bottoms), self.axis)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return views of the top's gradient."""
        parts = torch.split(top_diffs[0], self.sizes, self.axis)
        return [part if want else None for part, want in zip(parts, wanted, strict=True)]
