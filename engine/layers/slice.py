"""Slice: cuts a blob into parts along one axis.

    y_i = x from slice_point_{i - 1} to slice_point_i along `axis`

Fields of `slice_param` (default): axis (1), counted from the end if negative; slice_dim: the same in old files;
slice_point: where to cut, in ascending order, one fewer than tops; without any, all parts have one size.
Bottom: any shape with that axis. Tops: its parts, views of the bottom.
No differences from Caffe. (Caffe: slice_layer.cpp.)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer, at_least
from mgcaffe.engine.layers.shared.fields import joining_axis
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Slice")
class Slice(Layer):
    """The layer; see the module's text."""

    capturable = True
    tops = at_least(1)
    keeps_bottoms = False
    tops_share_bottoms = True

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return one shape a part."""
        shape = bottom_shapes[0]
        self.axis = axis = joining_axis(self, "slice_param", "slice_dim", len(shape))
        self.sizes = self._sizes(shape[axis])
        self.shares_blobs = len(self.sizes) == 1
        return [(*shape[:axis], size, *shape[axis + 1 :]) for size in self.sizes]

    def _sizes(self, whole: int) -> list[int]:
        points, count = list(self.param.slice_param.slice_point), len(self.param.top)
        if not points:
            if whole % count:
                self.fail(
                    f"a size of {whole} along axis {self.axis} cannot be cut into {count} equal parts",
                    "slice_param.slice_dim" if self.param.slice_param.HasField("slice_dim") else "slice_param.axis",
                    hint=f"give {count - 1} slice_point(s)",
                )
            return [whole // count] * count
        if len(points) != count - 1:
            self.fail(f"{count} tops need {count - 1} slice_point(s), not {len(points)}", "slice_param.slice_point")
        edges = [0, *points, whole]
        sizes = [end - start for start, end in itertools.pairwise(edges)]
        wrong = next((place for place, size in enumerate(sizes) if size <= 0), None)
        if wrong is not None:
            self.fail(
                f"slice_points {points} do not ascend from above 0 to below {whole}, the size of axis {self.axis}",
                "slice_param.slice_point",
                index=min(wrong, len(points) - 1),
            )
        return sizes

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep nothing."""
        return list(torch.split(bottoms[0], self.sizes, self.axis))

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Join the parts' gradients."""
        if not wanted[0]:
            return [None]
        return [top_diffs[0] if len(top_diffs) == 1 else torch.cat(list(top_diffs), self.axis)]
