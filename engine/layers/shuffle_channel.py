"""ShuffleChannel: interleaves the channels of the groups.

    y[n, j group + i] = x[n, i C / group + j]           for i < group, j < C / group; dx undoes that to dy

Fields of `shuffle_channel_param` (default): group (1): how many groups of neighbouring channels the bottom has.
Bottom: (N, C, ...), group divides C. Top: the same shape.
No differences from Caffe. (ShuffleNet's Caffe: shuffle_channel_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.kernels.formats import format_of
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.shared.fields import refuse_missing_channels
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("ShuffleChannel")
class ShuffleChannel(Layer):
    """The layer; see the module's text."""

    capturable = True
    keeps_bottoms = False

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the bottom's shape."""
        shape, group = bottom_shapes[0], int(self.param.shuffle_channel_param.group)
        refuse_missing_channels(self, shape)
        if group < 1 or shape[1] % group:
            self.fail(f"group {group} does not divide the {shape[1]} channels", "shuffle_channel_param.group")
        self.group = group
        return [shape]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep nothing."""
        return [_transposed(bottoms[0], self.group)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Put the channels back into their groups."""
        dy = top_diffs[0]
        return [_transposed(dy, dy.shape[1] // max(1, self.group)) if wanted[0] else None]


def _transposed(x: torch.Tensor, rows: int) -> torch.Tensor:
    """x with its channels, seen as a matrix with that many rows, transposed; in the same memory format."""
    if x.dim() == 4 and x.numel():
        return torch.channel_shuffle(x, rows)
    matrix: torch.Tensor = x.unflatten(1, (rows, x.shape[1] // max(1, rows))).transpose(1, 2)
    if format_of(x) == torch.contiguous_format:
        return matrix.reshape(x.shape)
    y = torch.empty_like(x, memory_format=torch.channels_last)
    y.unflatten(1, matrix.shape[1:3]).copy_(matrix)
    return y
