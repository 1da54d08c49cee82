"""MAX pooling that masks its gradient by the ReLU before it.

A maximum is one of the values that the ReLU made, and is positive where that one is. So the ReLU's mask of the gradient
can be made from the maxima, before each gradient is handed to its place, with the same bits: mostly over fewer values,
and without the ReLU's top, which then need not be kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.graph.fused_layer import FusedLayer, through_relu
from mgcaffe.engine.graph.node import Node, readers_of
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.pooling import Pooling
from mgcaffe.engine.layers.shared.pooling_methods import MaxPooling
from mgcaffe.engine.types import Shape


class RectifiedPooling(FusedLayer):
    """y[n, c, i, j] = the largest x inside window (i, j), where x is what a ReLU made."""

    keeps_bottoms = False
    keeps_tops = True

    def __init__(self, members: Sequence[Layer]) -> None:
        super().__init__(members)
        assert isinstance(members[0], Pooling)
        self.pooling = members[0]

    def others_bytes(self, top_shapes: Sequence[Shape]) -> int:
        """Return the size of the places."""
        return self.pooling.others_bytes(top_shapes)

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the top and the places."""
        tops = self.pooling.forward(bottoms)
        self.saved = tops[0] if self.backward_follows else None
        return tops

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the gradient of the ReLU's bottom."""
        y, self.saved = self.saved, None
        dy = through_relu(top_diffs[0], y, self.may_overwrite_top_diff[0])
        del y  # before the bottom's gradient takes memory
        return self.pooling.backward([dy], wanted)

    def release(self) -> None:
        """Drop what forward kept, top and places."""
        super().release()
        self.pooling.release()


def pooling_behind(nodes: Sequence[Node], relu: Node) -> Node | None:
    """Return the MAX pooling that alone reads what a ReLU makes, and passes a gradient back; None: there is none."""
    readers = readers_of(nodes, relu)
    if len(readers) != 1 or any(relu.loss_weights) or not relu.needs_backward:
        return None
    reader = readers[0]
    is_maximum = isinstance(reader.layer, Pooling) and isinstance(reader.layer.method, MaxPooling)
    return reader if is_maximum and reader.needs_backward and reader.wants[0] else None
