"""The shape of a filter's walk over its input: kernel, stride, pad and dilation of each axis, and groups.

Kernels round sizes down. Where C cuts them off towards 0, layers put zeros behind the input (`missing`, `filled`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch


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

    def fits(self, input_size: Sequence[int]) -> bool:
        """Return whether neither the filter nor its step is larger than the input along an axis."""
        return all(
            size >= max(dilation * (kernel - 1) + 1, stride)
            for size, kernel, stride, _, dilation in self._axes(input_size)
        )

    def missing(self, input_size: Sequence[int]) -> tuple[int, ...]:
        """Return how many zeros Caffe takes to lie behind an input that is smaller than the filter, along each axis.

        C cuts a negative quotient off towards 0: an input that lacks fewer pixels than one stride gives one output.
        """
        lacks = (
            (dilation * (kernel - 1) + 1 - size - 2 * pad, stride)
            for size, kernel, stride, pad, dilation in self._axes(input_size)
        )
        return tuple(lack if 0 < lack < stride else 0 for lack, stride in lacks)

    def transposed_size(self, input_size: Sequence[int]) -> tuple[int, ...]:
        """Deconvolution: stride (in - 1) + extent - 2 pad."""
        return tuple(
            stride * (size - 1) + dilation * (kernel - 1) + 1 - 2 * pad
            for size, kernel, stride, pad, dilation in self._axes(input_size)
        )

    def _axes(self, input_size: Sequence[int]) -> zip[tuple[int, int, int, int, int]]:
        return zip(input_size, self.kernel, self.stride, self.pad, self.dilation, strict=True)


def grown(size: Sequence[int], missing: Sequence[int]) -> tuple[int, ...]:
    """Return a spatial size with the zeros that `Geometry.missing` counts."""
    return tuple(have + more for have, more in zip(size, missing, strict=True))


def filled(x: torch.Tensor, missing: Sequence[int]) -> torch.Tensor:
    """Return x, whose last axes are the spatial ones, with the missing zeros at their ends."""
    if not any(missing):
        return x
    return torch.constant_pad_nd(x, [amount for more in reversed(missing) for amount in (0, more)])


def cut(x: torch.Tensor, missing: Sequence[int]) -> torch.Tensor:
    """Return the adjoint of `filled`, in storage of its own."""
    if not any(missing):
        return x
    return torch.constant_pad_nd(x, [amount for more in reversed(missing) for amount in (0, -more)])
