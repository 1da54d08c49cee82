"""Filter: lets some items of a batch through.

    y_k = the items x_k[i] with selector[i] != 0, in order;  dx_k = dy_k there, 0 for all other items

No fields.
Bottoms: one or more blobs x_k (N, ...), and last the selector, N values (N, 1, ...), to which no gradient flows.
Tops: one for every x_k, (M, ...) with the M <= N items selected; M varies from batch to batch and may be 0.
No differences from Caffe. (Caffe: filter_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer, at_least
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Filter")
class Filter(Layer):
    """The layer; see the module's text."""

    bottoms = at_least(2)
    tops = at_least(1)
    keeps_bottoms = False

    def differentiable(self, bottom: int) -> bool:
        """Nothing flows to the selector."""
        return bottom < len(self.param.bottom) - 1

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check that every bottom but the selector has its top."""
        if len(self.param.top) != len(bottom_shapes) - 1:
            self.fail(
                f"{len(bottom_shapes)} bottoms, the last of them the selector, need {len(bottom_shapes) - 1} tops,"
                f" not {len(self.param.top)}",
                "top",
            )

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottoms' shapes, as if all items were selected."""
        *self.shapes, selector = bottom_shapes
        if math.prod(selector[1:]) != 1 or not selector:
            self.fail(f"the selector, the last bottom, needs one value an item; its shape is {selector}")
        for index, shape in enumerate(self.shapes):
            if shape[:1] != selector[:1]:
                self.fail(f"bottom {index} has shape {shape}, but the selector is for {selector[0]} items")
        return list(self.shapes)

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the numbers of the items selected."""
        *blobs, selector = bottoms
        items = selector.reshape(-1).nonzero()[:, 0]
        self.saved = items if self.backward_follows else None
        return [x.index_select(0, items) for x in blobs]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Put the gradients back into their places."""
        # Before the first forward pass the top still has all rows, and none of them was selected.
        diffs: list[torch.Tensor | None] = [
            dy.new_zeros(shape).index_copy_(0, self.saved, dy[: len(self.saved)]) if want else None
            for dy, shape, want in zip(top_diffs, self.shapes, wanted[:-1], strict=True)
        ]
        return [*diffs, None]
