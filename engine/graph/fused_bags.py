"""Neighbouring EmbeddingBag layers that run as one: one look-up in all their tables.

For a batch of 128 the look-up of one table is mostly the work of calling it. Tables that lie side by side
(`ParameterArena`) are one matrix, and so is what is looked up in them, table by table; each top is a part of that.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.graph.fused_layer import FusedLayer
from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.kernels.rows import Stack, read_rows_of, stack
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.embedding_bag import EmbeddingBag
from mgcaffe.engine.types import Shape


class EmbeddingBags(FusedLayer):
    """Layers with one bottom each, whose tables lie in this process.

    Where an item has one id in each of them, and the tables lie in one storage, they look up together, else one by one.

    Attributes:
        bags: the layers.
    """

    keeps_bottoms = False

    def __init__(self, members: Sequence[Layer]) -> None:
        super().__init__(members)
        self.bags = [layer for layer in members if isinstance(layer, EmbeddingBag)]
        self._stack: Stack | None = None
        self._last = torch.tensor([[bag.table.shape[0] - 1] for bag in self.bags], device=self.context.device)
        self._first = torch.zeros_like(self._last)
        self._are_alike = False

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Reshape each layer; see whether there is one id an item, and as many items everywhere."""
        first = bottom_shapes[0]
        self._are_alike = (
            bool(first) and first[0] == math.prod(first) > 0 and bottom_shapes.count(first) == len(bottom_shapes)
        )
        return [top for bag, shape in zip(self.bags, bottom_shapes, strict=True) for top in bag.reshape([shape])]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep the ids, table by table."""
        self.saved = None
        tables = [bag.table.data for bag in self.bags]
        if self._stack is None or not self._stack.is_of(tables):
            self._stack = stack(tables)
        if self._stack is None or not self._are_alike:
            return self._one_by_one(bottoms)
        ids = torch.cat(list(bottoms)).view(len(bottoms), -1).long()
        if not torch.equal(ids.clamp(self._first, self._last), ids):
            return self._one_by_one(bottoms)  # which says what is wrong
        rows = (ids + self._stack.starts[:, None]).view(-1)
        self.saved = ids if self.backward_follows else None
        found = read_rows_of(self._stack.whole, rows)
        return list(found.view(*ids.shape, found.shape[1]).unbind())

    def _one_by_one(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [bag.forward([bottom])[0] for bag, bottom in zip(self.bags, bottoms, strict=True)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Hand over the gradients of the rows that were looked up, last layer first: some may share a table."""
        if self.saved is None:
            for number, bag in reversed([*enumerate(self.bags)]):
                bag.may_overwrite_top_diff = self.may_overwrite_top_diff[number : number + 1]
                bag.backward([top_diffs[number]], [False])
        else:
            diffs = torch.stack(list(top_diffs))
            for bag, ids, diff in reversed([*zip(self.bags, self.saved.unbind(), diffs.unbind(), strict=True)]):
                if bag.table.wanted:
                    bag.table.add_rows(ids, diff)
        return [None] * len(wanted)

    def release(self) -> None:
        """Drop what forward kept, wherever it is."""
        if self.saved is None:
            for bag in self.bags:
                bag.release()
        super().release()


def bags_of(nodes: Sequence[Node], index: int) -> int:
    """Return how many nodes from `index` on can look up as one: none of them reads what another of them makes."""
    first = nodes[index]
    made: set[int] = set()
    for count, node in enumerate(nodes[index:]):
        layer = node.layer
        if not isinstance(layer, EmbeddingBag) or len(node.bottoms) != 1 or layer.table.placement is not None:
            return count
        is_like_first = layer.table.shape[1] == first.layer.parameters[0].shape[1]
        if not is_like_first or node.needs_backward != first.needs_backward or id(node.bottoms[0]) in made:
            return count
        made.update(id(blob) for blob in node.tops)
    return len(nodes) - index
