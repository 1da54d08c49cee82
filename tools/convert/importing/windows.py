"""Where the windows of convolutions and pooling lie: pads of all kinds, brought into Caffe's.

Caffe has as many zeros in front as behind. A graph that has more at one end becomes a layer with the larger pad and,
where that makes more windows than wanted, a Slice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mgcaffe.tools.convert.importing.operation import Operation
from mgcaffe.tools.convert.importing.shapes import cut
from mgcaffe.tools.convert.importing.values import Padded, Shape, Value


@dataclass(frozen=True)
class Axis:
    """The windows along one axis.

    Attributes:
        size: of the image.
        kernel: how many pixels a window has.
        stride: from one to the next.
        begin, end: zeros in front and behind.
        dilation: distance of a window's pixels.
        ceil: the last window may go beyond the zeros.
        behind: how many of the zeros behind belong to the image, so that with `ceil` a window may start among them.
    """

    size: int
    kernel: int
    stride: int
    begin: int
    end: int
    dilation: int = 1
    ceil: bool = False
    behind: int = 0

    @property
    def extent(self) -> int:
        """How many pixels a window covers."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def count(self) -> int:
        """How many windows there are, less than 1 where none fits; one that starts behind the image is left out."""
        span = self.size + self.begin + self.end - self.extent
        count = (-(-span // self.stride) if self.ceil else span // self.stride) + 1
        return count - (self.ceil and (count - 1) * self.stride >= self.size + self.begin + self.behind)

    def symmetric(self) -> tuple[int, int]:
        """Return the least pad for both ends with which windows lie in the same places, and the first one's number."""
        missing = (self.count - 1) * self.stride + self.extent - self.size - 2 * self.begin
        first = max(0, -(-missing // self.stride))
        return self.begin + first * self.stride, first


def axes_of(
    op: Operation,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    around: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    *,
    ceil: bool = False,
) -> list[Axis]:
    """Return the windows along each spatial axis.

    Args:
        op: the operator.
        x: its image, perhaps with zeros around it.
        kernel: sizes of a window.
        stride: from one window to the next.
        around: zeros in front and behind that the operator adds.
        dilation: distances of a window's pixels.
        ceil: sizes are rounded up.
    """
    if len(x.shape) != len(kernel) + 2:
        op.refuse(f"the input has shape {x.shape}, which is not batch, channels and {len(kernel)} axes of the kernel")
    fronts, behinds = (x.pad, x.behind) if isinstance(x, Padded) else ((0,) * len(kernel),) * 2
    own = zip(x.shape[2:], kernel, stride, around, dilation, strict=True)
    axes = [
        Axis(size, width, step, begin + front, end + behind, gap, ceil, behind)
        for (size, width, step, (begin, end), gap), front, behind in zip(own, fronts, behinds, strict=True)
    ]
    if any(axis.count < 1 for axis in axes):
        op.refuse(f"its windows do not fit into an image of {x.shape[2:]}")
    return axes


def with_windows(op: Operation, firsts: Sequence[int], counts: Sequence[int], make: Callable[[Shape], Value]) -> Value:
    """Add a layer that has more windows than wanted, and cut out those.

    Args:
        op: the operator; its shape is that of all windows wanted.
        firsts: along each spatial axis, the number of the first window wanted.
        counts: how many windows the layer has.
        make: adds the layer, given the shape of its top.
    """
    wanted = op.shape
    y = make((*wanted[:2], *counts))
    for axis, (first, count) in enumerate(zip(firsts, counts, strict=True), start=2):
        sizes = (first, wanted[axis], count - first - wanted[axis])
        parts = cut(op, y, axis, [size for size in sizes if size])
        y = parts[1 if first else 0]
    op.shape = wanted
    return y


def unpadded(x: Value) -> Value:
    """Return a value without the zeros around it."""
    return Value(x.blob, x.shape)
