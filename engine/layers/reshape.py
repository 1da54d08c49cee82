"""Reshape: gives a blob another shape.

    y = x, with the axes from `axis` on, `num_axes` of them, replaced by those of `shape`

Fields of `reshape_param` (default): shape: its sizes, where 0 stands for the size of the bottom's axis at the same
place, and -1 (at most once) for what is left; axis (0): the first axis replaced, where -1 means behind the last one;
num_axes (-1): how many are replaced, -1 for all to the end.
Bottom: any shape. Top: its values in the same order.
No differences from Caffe. (Caffe: reshape_layer.cpp.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.shared.fields import refuse_fork_fields
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


class Reshaping(Layer):
    """A layer whose top has the bottom's values in the same order. Subclasses say `new_shape`."""

    keeps_others = False
    diffs_share_tops = True
    keeps_bottoms = False
    tops_share_bottoms = True
    shares_blobs = True

    def new_shape(self, shape: Shape) -> Shape:
        """Return the top's shape for a bottom of this shape."""
        raise NotImplementedError

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the new shape."""
        self.bottom_shape = bottom_shapes[0]
        self.top_shape = self.new_shape(bottom_shapes[0])
        return [self.top_shape]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Keep nothing; a view wherever the memory format lets it be one."""
        return [bottoms[0].reshape(self.top_shape)]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Return the top's gradient in the bottom's shape."""
        return [top_diffs[0].reshape(self.bottom_shape) if wanted[0] else None]


@register("Reshape")
class Reshape(Reshaping):
    """The layer; see the module's text."""

    capturable = True

    def new_shape(self, shape: Shape) -> Shape:
        """Return the shape that the fields ask for."""
        param = self.param.reshape_param
        refuse_fork_fields(self, param, "reshape_param", {"pixelshuffler": 1})
        start, end = self._replaced(len(shape))
        sizes = [self._size(index, start, shape) for index in range(len(param.shape.dim))]
        if sizes.count(-1) > 1:
            second = [place for place, size in enumerate(sizes) if size == -1][1]
            self.fail(f"-1 stands more than once among the sizes {sizes}", "reshape_param.shape.dim", index=second)
        if -1 in sizes:
            known = math.prod(size for size in sizes if size != -1) * math.prod((*shape[:start], *shape[end:]))
            if not known or math.prod(shape) % known:
                self.fail(
                    f"the {math.prod(shape)} values of a bottom of shape {shape} cannot be shared out evenly:"
                    f" the other sizes make {known}",
                    "reshape_param.shape.dim",
                    index=sizes.index(-1),
                )
            sizes[sizes.index(-1)] = math.prod(shape) // known
        wished = (*shape[:start], *sizes, *shape[end:])
        if math.prod(wished) != math.prod(shape):
            self.fail(
                f"a bottom of shape {shape} has {math.prod(shape)} values, shape {wished} has {math.prod(wished)}",
                "reshape_param.shape",
            )
        return wished

    def _replaced(self, rank: int) -> tuple[int, int]:
        """Return the range of axes that `shape` replaces."""
        param = self.param.reshape_param
        start = param.axis if param.axis >= 0 else rank + param.axis + 1
        if not 0 <= start <= rank:
            self.fail(f"axis {param.axis} does not exist in a blob with {rank} axes", "reshape_param.axis")
        if param.num_axes < -1:
            self.fail(f"num_axes has to be -1 or more, not {param.num_axes}", "reshape_param.num_axes")
        end = rank if param.num_axes == -1 else start + param.num_axes
        if end > rank:
            self.fail(
                f"num_axes {param.num_axes} from axis {start} on go beyond the {rank} axes of the bottom",
                "reshape_param.num_axes",
            )
        return start, end

    def _size(self, index: int, start: int, shape: Shape) -> int:
        """Return the size number `index`, with 0 replaced by the bottom's."""
        size = int(self.param.reshape_param.shape.dim[index])
        if size < -1:
            self.fail(f"a size has to be -1 or more, not {size}", "reshape_param.shape.dim", index=index)
        if size:
            return size
        if start + index >= len(shape):
            self.fail(
                f"size {index} is 0, but the bottom's shape {shape} has no axis {start + index} to copy",
                "reshape_param.shape.dim",
                index=index,
            )
        return shape[start + index]
