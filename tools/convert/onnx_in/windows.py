"""Where the windows of convolutions and pooling lie: pads in all the forms that ONNX has, brought into Caffe's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mgcaffe.tools.convert.importing.shapes import cut
from mgcaffe.tools.convert.importing.values import Shape, Value
from mgcaffe.tools.convert.onnx_in.operation import LARGEST, Operation, Padded


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
    """

    size: int
    kernel: int
    stride: int
    begin: int
    end: int
    dilation: int = 1
    ceil: bool = False

    @property
    def extent(self) -> int:
        """How many pixels a window covers."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def count(self) -> int:
        """How many windows there are; one that would start behind the image is left out, as in PyTorch."""
        span = self.size + self.begin + self.end - self.extent
        if span < 0:
            return 0
        count = (-(-span // self.stride) if self.ceil else span // self.stride) + 1
        return count - (self.ceil and (count - 1) * self.stride >= self.size + self.begin)

    def symmetric(self) -> tuple[int, int]:
        """Return the least pad for both ends with which windows lie in the same places, and the first one's number."""
        missing = (self.count - 1) * self.stride + self.extent - self.size - 2 * self.begin
        first = max(0, -(-missing // self.stride))
        return self.begin + first * self.stride, first


def axes_of(op: Operation, x: Value, kernel: Sequence[int], *, ceil: bool = False) -> list[Axis]:
    """Return the windows of an operator with kernel, strides, dilations, pads and auto_pad.

    Args:
        op: the operator.
        x: its image, perhaps with zeros around it.
        kernel: sizes of a window.
        ceil: sizes are rounded up.
    """
    count = len(kernel)
    if len(x.shape) != count + 2:
        op.refuse(f"its input has shape {x.shape}, and its kernel {count} axes")
    strides, dilations = op.sizes("strides", count, 1), op.sizes("dilations", count, 1)
    pads = op.sizes("pads", 2 * count, 0, least=0)
    mode = op.word("auto_pad", "NOTSET")
    around = list(zip(pads[:count], pads[count:], strict=True))
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        op.refuse(f"its auto_pad is '{mode}', which does not exist")
    if mode == "VALID":
        around = [(0, 0)] * count
    elif mode != "NOTSET":
        sizes = x.whole_shape[2:] if isinstance(x, Padded) else x.shape[2:]
        around = [_same(op, *each, mode) for each in zip(sizes, kernel, strides, dilations, strict=True)]
    if isinstance(x, Padded):
        zeros = zip(around, x.pad, x.behind, strict=True)
        around = [(one + front, two + behind) for (one, two), front, behind in zeros]
    axes = [
        Axis(size, width, stride, begin, end, dilation, ceil)
        for size, width, stride, (begin, end), dilation in zip(
            x.shape[2:], kernel, strides, around, dilations, strict=True
        )
    ]
    if any(max(axis.begin, axis.end, axis.extent, axis.stride) > LARGEST // 4 for axis in axes):
        op.refuse("its windows are larger than any blob")
    if any(axis.count < 1 for axis in axes):
        op.refuse(f"its windows do not fit into an image of {x.shape[2:]}")
    return axes


def _same(op: Operation, size: int, kernel: int, stride: int, dilation: int, mode: str) -> tuple[int, int]:
    """Return the zeros that make the output's size that of the input over the stride."""
    count = -(-size // stride)
    missing = (count - 1) * stride + dilation * (kernel - 1) + 1 - size
    if missing < -1:
        op.refuse(f"its auto_pad is '{mode}', which cuts an image of {size} with a stride of {stride}")
    missing = max(0, missing)
    small, large = missing // 2, missing - missing // 2
    return (small, large) if mode == "SAME_UPPER" else (large, small)


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
    for place, (first, count) in enumerate(zip(firsts, counts, strict=True)):
        axis = 2 + place
        sizes = (first, wanted[axis], count - first - wanted[axis])
        if count != wanted[axis]:
            op.shape = y.shape
            parts = cut(op, y, axis, [size for size in sizes if size])
            y = parts[1 if first else 0]
    op.shape = wanted
    return y
