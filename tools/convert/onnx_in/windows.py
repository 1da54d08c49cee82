"""Reads where the windows of convolutions and pooling lie: strides, dilations, pads and auto_pad."""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.tools.convert.importing import windows
from mgcaffe.tools.convert.importing.values import Padded, Value
from mgcaffe.tools.convert.importing.windows import Axis
from mgcaffe.tools.convert.onnx_in.operation import LARGEST, Operation


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
    extents = [gap * width for gap, width in zip(dilations, kernel, strict=True)]
    if max(*strides, *extents, *(size for pair in around for size in pair)) > LARGEST // 4:
        op.refuse("its windows are larger than any blob")
    return windows.axes_of(op, x, kernel, strides, around, dilations, ceil=ceil)


def _same(op: Operation, size: int, kernel: int, stride: int, dilation: int, mode: str) -> tuple[int, int]:
    """Return the zeros that make the output's size that of the input over the stride."""
    count = -(-size // stride)
    missing = (count - 1) * stride + dilation * (kernel - 1) + 1 - size
    if missing < -1:
        op.refuse(f"its auto_pad is '{mode}', which cuts an image of {size} with a stride of {stride}")
    missing = max(0, missing)
    small, large = missing // 2, missing - missing // 2
    return (small, large) if mode == "SAME_UPPER" else (large, small)
