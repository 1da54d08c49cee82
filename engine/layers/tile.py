"""Tile: repeats a blob along one axis.

    y = x, x, ... one after the other along `axis`, `tiles` times; dx = the sum of the parts of dy

Fields of `tile_param` (default): axis (1), counted from the end if negative; tiles, required, at least 1.
Bottom: any shape with that axis. Top: the same, with `tiles` times the size.
No differences from Caffe. (Caffe: tile_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Tile")
class Tile(Layer):
    """The layer; see the module's text."""

    capturable = True
    keeps_bottoms = False

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the number of tiles."""
        self.tiles: int = self.param.tile_param.tiles
        if self.tiles < 1:
            self.fail(f"tiles has to be given and at least 1, not {self.tiles}", "tile_param")

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's shape with a longer axis."""
        shape = bottom_shapes[0]
        self.axis = self.canonical_axis(self.param.tile_param.axis, len(shape), "tile_param.axis")
        self.size = shape[self.axis]
        return [(*shape[: self.axis], self.size * self.tiles, *shape[self.axis + 1 :])]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep nothing."""
        return [torch.cat([bottoms[0]] * self.tiles, self.axis)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Add the tiles up."""
        if not wanted[0]:
            return [None]
        first, *others = top_diffs[0].split(self.size, self.axis)
        if not others:
            return [first]
        total = first + others[0]
        for other in others[1:]:
            total += other
        return [total]
