"""Input: blobs that whoever runs the net fills.

    y_i = values[i]

Fields of `input_param`: shape: one for every top, or one for all; none where it is known only later.
No bottoms. Tops: one or more. They begin as zeros (of shape () where none is given) and keep what is written into them.
Differences from Caffe: a layer that works in place on a top leaves what was written into it as it is for the next pass.
In Caffe it writes over that, so that where nobody fills the top again it works on its own result of the pass before.
(Caffe: input_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.layer import Layer, at_least, exactly
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape


@register("Input")
class Input(Layer):
    """The layer; see the module's text.

    Attributes:
        values: one tensor a top. Write into them, or put others, of any shape, in their place.
    """

    bottoms = exactly(0)
    tops = at_least(1)
    keeps_bottoms = False
    values: list[torch.Tensor]

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check the shapes and make the blobs."""
        shapes, count = self.param.input_param.shape, len(self.param.top)
        if len(shapes) not in (0, 1, count):
            self.fail(f"{len(shapes)} shapes for {count} tops", "input_param.shape", hint="give one, or one a top")
        for index, shape in enumerate(shapes):
            if any(size < 0 for size in shape.dim):
                self.fail(f"shape {index} has a negative size: {list(shape.dim)}", "input_param.shape")
        given = [tuple(shape.dim) for shape in shapes] or [()]
        self.values = [self._zeros(given[index % len(given)]) for index in range(count)]

    def _zeros(self, shape: Shape) -> torch.Tensor:
        context = self.context
        memory_format = context.memory_format if len(shape) == 4 else torch.contiguous_format
        return torch.empty(shape, dtype=context.dtype, device=context.device, memory_format=memory_format).zero_()

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shapes of the values."""
        return [tuple(value.shape) for value in self.values]

    def first_values(self) -> list[torch.Tensor | None]:
        """Return the values themselves."""
        return list(self.values)

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the values themselves."""
        return list(self.values)

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Nothing: there are no bottoms."""
        return []
