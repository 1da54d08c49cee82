"""BatchReindex: picks items of a batch, in any order and as often as wanted.

    y[i] = x[permutation[i]]                          dx[j] = sum of dy[i] where permutation[i] = j

No fields.
Bottoms: x (N, ...); permutation (M), whole numbers from 0 to N - 1, to which no gradient flows.
Top: (M, ...). M may be 0.
No differences from Caffe. (Caffe: batch_reindex_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer, exactly
from mgcaffe.engine.layers.shared.rows import add_rows, read_rows
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("BatchReindex")
class BatchReindex(Layer):
    """The layer; see the module's text."""

    bottoms = exactly(2)
    keeps_bottoms = False

    def differentiable(self, bottom: int) -> bool:
        """Nothing flows to the permutation."""
        return bottom == 0

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the permutation's length, and the other axes of bottom 0."""
        self.shape, permutation = bottom_shapes
        if len(permutation) != 1:
            self.fail(f"the permutation, bottom 1, has to have one axis; its shape is {permutation}")
        if not self.shape:
            self.fail("bottom 0 needs an axis")
        return [(*permutation, *self.shape[1:])]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the permutation."""
        rows = read_rows(self, bottoms[1], self.shape[0], 1)
        self.saved = rows if self.backward_follows else None
        return [bottoms[0].index_select(0, rows)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Add up what an item's copies send back; zero for one that was not picked."""
        if not wanted[0]:
            return [None, None]
        dx = top_diffs[0].new_zeros(self.shape)
        add_rows(dx, self.saved, top_diffs[0])
        return [dx, None]
