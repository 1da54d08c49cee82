"""DummyData: tops made by fillers.

A constant top is filled once and given out again in every pass, other tops are filled anew from the net's random
stream.

Fields of `dummy_data_param`: shape: one for all tops or one each (or the old num, channels, height, width, likewise);
data_filler: none (zeros), one for all tops, or one each.
No bottoms. Tops: one or more, of these shapes.
Differences from Caffe: a layer that works in place on a constant top is given the constant in every pass. Caffe never
fills such a top again, so that there the layer works on its own result of the pass before.
(Caffe: dummy_data_layer.cpp.)
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine import fillers
from mgcaffe.engine.layer import Layer, at_least, exactly
from mgcaffe.engine.registry import register
from mgcaffe.engine.types import Shape
from mgcaffe.errors import NetError
from mgcaffe.prototxt import FillerParameter

_OLD_AXES = ("num", "channels", "height", "width")


@register("DummyData")
class DummyData(Layer):
    """Blobs out of nothing."""

    bottoms = exactly(0)
    tops = at_least(1)
    keeps_bottoms = False
    keeps_tops = True  # no other layer may use the storage of the constant ones

    def setup(self, bottom_shapes: Sequence[Shape]) -> None:
        """Check shapes and filler."""
        count = len(self.param.top)
        self._shapes = self._read_shapes(count)
        self._fillers: list[FillerParameter | None] = list(self.param.dummy_data_param.data_filler) or [None]
        if len(self._fillers) not in (1, count):
            self.fail(
                f"data_filler is given {len(self._fillers)} times for {count} top(s)",
                "dummy_data_param.data_filler",
                hint="give it once, once for every top, or not at all",
            )
        self._fillers = (self._fillers * count)[:count]
        for filler in self._fillers:
            try:
                fillers.check(filler)
            except NetError as error:
                self.fail(error.message, "dummy_data_param.data_filler", hint=error.hint)
        self._constants: list[tuple[torch.Tensor, int] | None] = [None] * count

    def reshape(self, bottom_shapes: Sequence[Shape]) -> list[Shape]:
        """Return the shapes that the fields give."""
        return self._shapes

    def first_values(self) -> list[torch.Tensor | None]:
        """Return the constant tops; None for those that are filled in every pass."""
        return [
            self._top(number) if filler is None or filler.type == "constant" else None
            for number, filler in enumerate(self._fillers)
        ]

    def forward(self, bottoms: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the tops, in the context's type and memory format."""
        return [self._top(number) for number in range(len(self._shapes))]

    def backward(self, top_diffs: Sequence[torch.Tensor], wanted: Sequence[bool]) -> list[torch.Tensor | None]:
        """Nothing: there are no bottoms."""
        return []

    def _top(self, number: int) -> torch.Tensor:
        kept = self._constants[number]
        if kept is not None and _version(kept[0]) == kept[1]:
            return kept[0]
        filler = self._fillers[number]
        top = self._fill(self._shapes[number], filler)
        if filler is None or filler.type == "constant":
            self._constants[number] = (top, _version(top))
        return top

    def _fill(self, shape: Shape, filler: FillerParameter | None) -> torch.Tensor:
        context = self.context
        memory_format = context.memory_format if len(shape) == 4 else torch.contiguous_format
        top = torch.empty(shape, dtype=context.dtype, device=context.device, memory_format=memory_format)
        try:
            fillers.fill(top, filler, context.generator)
        except NetError as error:
            self.fail(error.message, "dummy_data_param.data_filler", hint=error.hint)
        return top

    def _read_shapes(self, count: int) -> list[Shape]:
        param = self.param.dummy_data_param
        old = [list(getattr(param, axis)) for axis in _OLD_AXES]
        if param.shape and any(old):
            self.fail("shape and num, channels, height, width exclude each other", "dummy_data_param.shape")
        if param.shape:
            shapes = [tuple(int(size) for size in shape.dim) for shape in param.shape]
        else:
            for axis, sizes in zip(_OLD_AXES, old, strict=True):
                if len(sizes) not in (1, count):
                    self.fail(
                        f"{axis} is given {len(sizes)} times for {count} top(s)",
                        f"dummy_data_param.{axis}",
                        hint="give a shape, or num, channels, height and width, each once or once a top",
                    )
            shapes = list(zip(*(sizes * (count // len(sizes)) for sizes in old), strict=True))
        if len(shapes) not in (1, count):
            self.fail(
                f"{len(shapes)} shape(s) are given for {count} top(s)",
                "dummy_data_param.shape",
                hint="give one, or one for every top",
            )
        if any(size < 0 for shape in shapes for size in shape):
            self.fail("a shape has a negative axis", "dummy_data_param.shape")
        return (shapes * count)[:count]


def _version(tensor: torch.Tensor) -> int:
    """Count the writes to a tensor: an in-place layer on a constant top has it filled again."""
    return 0 if tensor.is_inference() else tensor._version
