"""The shape of a filter's walk over its input: kernel, stride, pad and dilation of each axis, and groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Geometry:
    """One number a spatial axis in `kernel`, `stride`, `pad` and `dilation`."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    def __str__(self) -> str:
        walk = (("stride", self.stride), ("pad", self.pad), ("dilation", self.dilation))
        text = " ".join(f"{name} {'x'.join(map(str, sizes))}" for name, sizes in walk)
        return text if self.groups == 1 else f"{text} groups {self.groups}"

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.kernel)

    def output_size(self, input_size: Sequence[int]) -> tuple[int, ...]:
        """Convolution: floor((in + 2 pad - extent) / stride) + 1, extent = dilation (kernel - 1) + 1."""
        return tuple(
            (size + 2 * pad - (dilation * (kernel - 1) + 1)) // stride + 1
            for size, kernel, stride, pad, dilation in self._axes(input_size)
        )

    def transposed_size(self, input_size: Sequence[int]) -> tuple[int, ...]:
        """Deconvolution: stride (in - 1) + extent - 2 pad."""
        return tuple(
            stride * (size - 1) + dilation * (kernel - 1) + 1 - 2 * pad
            for size, kernel, stride, pad, dilation in self._axes(input_size)
        )

    def _axes(self, input_size: Sequence[int]) -> zip[tuple[int, int, int, int, int]]:
        return zip(input_size, self.kernel, self.stride, self.pad, self.dilation, strict=True)
