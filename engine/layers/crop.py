"""Crop: cuts a blob to the size of another.

    y = x from `offset` on, with the sizes of bottom 1, along `axis` and all axes behind it

Fields of `crop_param` (default): axis (2), counted from the end if negative; offset (0): one for all these axes, or one
for each. Without `crop_param` a crop that cuts anything off warns that it begins at 0: before Caffe had this layer
forks (FCN, HED, U-Net) computed the offset from the layers between the bottoms, as `crop` of pycaffe's coord_map does.
Bottoms: x of any shape; one of the same number of axes, whose values do not matter.
Top: a view of x, of bottom 1's size from `axis` on. Nothing flows back to bottom 1.
No differences from Caffe. (Caffe: crop_layer.cpp.)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import torch

from mgcaffe.engine.checks.said_once import warn_once
from mgcaffe.engine.layer import Layer, exactly
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape

_log = logging.getLogger("mgcaffe.engine")


@register("Crop")
class Crop(Layer):
    """The layer; see the module's text."""

    capturable = True
    bottoms = exactly(2)
    keeps_bottoms = False
    tops_share_bottoms = True

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Bottom 0's axes before `axis`, then bottom 1's."""
        self.shape, self.size = bottom_shapes
        size = self.size
        if len(self.shape) != len(size):
            self.fail(f"the bottoms need as many axes, but their shapes are {self.shape} and {size}")
        axis = self.canonical_axis(self.param.crop_param.axis, len(size), "crop_param.axis")
        offsets = self._offsets(len(size) - axis)
        for place, offset in enumerate(offsets, axis):
            if offset + size[place] > self.shape[place]:
                self.fail(
                    f"a crop of size {size[place]} at offset {offset} does not fit into axis {place}"
                    f" of bottom 0, which has size {self.shape[place]}",
                    "crop_param.offset",
                    index=place - axis if len(self.param.crop_param.offset) > 1 else 0,
                )
        spans = (slice(offset, offset + extent) for offset, extent in zip(offsets, size[axis:], strict=True))
        if not self.param.HasField("crop_param") and size[axis:] != self.shape[axis:]:
            self._warn_of_no_offset()
        self.window = (*[slice(None)] * axis, *spans)
        return [(*self.shape[:axis], *size[axis:])]

    def _offsets(self, axes: int) -> list[int]:
        offsets = list(self.param.crop_param.offset) or [0]
        if len(offsets) == 1:
            return offsets * axes
        if len(offsets) != axes:
            self.fail(
                f"{len(offsets)} offsets are given for {axes} axes",
                "crop_param.offset",
                hint="give one, or one an axis",
            )
        return offsets

    def _warn_of_no_offset(self) -> None:
        text = (
            f"Crop without crop_param begins at offset 0 (layer '{self.name}'). Nets of before 2016 mean the offset"
            " that their fork computed from the layers between; crop() of pycaffe's coord_map computes it"
        )
        warn_once(_log, text, text, location=self.location())

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """No copy."""
        return [bottoms[0][self.window]]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Zero around the window. Bottom 1 only lends its size: its gradient is zero."""
        dy = top_diffs[0]
        return [self._uncropped(dy) if wanted[0] else None, dy.new_zeros(self.size) if wanted[1] else None]

    def _uncropped(self, dy: torch.Tensor) -> torch.Tensor:
        dx = dy.new_zeros(self.shape)
        dx[self.window] = dy
        return dx
