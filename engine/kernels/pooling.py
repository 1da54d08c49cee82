"""Maximum and average pooling over two spatial axes, with Caffe's shapes and divisors.

Caffe's windows go beyond what `torch.max_pool2d` knows in two ways: the pad may exceed half the kernel, and with
ceil rounding, no pad and a stride above the kernel the last window can lie outside the image altogether. Then
the input is padded here, and pooled without pad. An empty window holds 0 and passes no gradient on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from mgcaffe.engine.kernels.formats import format_of

Pair = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """Kernel, stride and pad for rows and columns; `ceil`: sizes are rounded up."""

    kernel: Pair
    stride: Pair
    pad: Pair = (0, 0)
    ceil: bool = True

    def output_size(self, input_size: Sequence[int]) -> Pair:
        """Caffe's output size; a last window that starts in the padding behind the image is dropped."""
        rows, columns = (self._count(axis, input_size[axis]) for axis in (0, 1))
        return rows, columns

    def _count(self, axis: int, size: int) -> int:
        pad, stride = self.pad[axis], self.stride[axis]
        span = size + 2 * pad - self.kernel[axis]
        count = (-(-span // stride) if self.ceil else span // stride) + 1
        if any(self.pad) and (count - 1) * stride >= size + pad:
            count -= 1
        return count

    def fits_torch(self, input_size: Sequence[int]) -> bool:
        """Return whether PyTorch's own pooling has these windows and no others."""
        small_pad = all(2 * pad <= kernel for pad, kernel in zip(self.pad, self.kernel, strict=True))
        return small_pad and not any(self.empty(input_size))

    def empty(self, input_size: Sequence[int]) -> tuple[bool, bool]:
        """Return whether the last row (the last column) of windows lies outside the image."""
        out = self.output_size(input_size)
        rows, columns = ((out[axis] - 1) * self.stride[axis] - self.pad[axis] >= input_size[axis] for axis in (0, 1))
        return rows, columns

    def margins(self, input_size: Sequence[int]) -> list[int]:
        """Return what to pad (or, if negative, to cut) for exactly these windows: left, right, above, below."""
        out = self.output_size(input_size)
        behind = [
            (out[axis] - 1) * self.stride[axis] + self.kernel[axis] - input_size[axis] - self.pad[axis]
            for axis in (0, 1)
        ]
        return [self.pad[1], behind[1], self.pad[0], behind[0]]


def max_forward(x: torch.Tensor, window: Window) -> tuple[torch.Tensor, torch.Tensor]:
    """Each window's maximum, and the places of the maxima for `max_backward`. The first of equals wins.

    A window with a NaN gives NaN (in Caffe a NaN never wins). On a CPU the results are channels last: in the
    other format PyTorch takes ten times as long, and converting x a fraction of the time won.
    """
    if x.device.type == "cpu" and x.shape[1] > 1:
        x = x.contiguous(memory_format=torch.channels_last)
    size = x.shape[2:]
    if window.fits_torch(size):
        result: tuple[torch.Tensor, torch.Tensor] = torch.ops.aten.max_pool2d_with_indices(
            x, window.kernel, window.stride, window.pad, [1, 1], window.ceil
        )
        return result
    padded = torch.constant_pad_nd(x, window.margins(size), float("-inf"))
    y, places = torch.ops.aten.max_pool2d_with_indices(padded, window.kernel, window.stride)
    _clear_empty(y, window.empty(size), 0)
    return y, places


def max_backward(
    dy: torch.Tensor,
    places: torch.Tensor,
    input_shape: Sequence[int],
    memory_format: torch.memory_format,
    window: Window,
) -> torch.Tensor:
    """Return the gradient of the input: each window's gradient goes to the place of its maximum."""
    dy = dy.contiguous(memory_format=memory_format)  # PyTorch takes five times as long with two formats
    size = input_shape[2:]
    fits = window.fits_torch(size)
    margins = [0, 0, 0, 0] if fits else window.margins(size)
    shape = (*input_shape[:2], size[0] + margins[2] + margins[3], size[1] + margins[0] + margins[1])
    dx = torch.empty(shape, dtype=dy.dtype, device=dy.device, memory_format=memory_format)
    pad, ceil = (window.pad, window.ceil) if fits else ((0, 0), False)
    # The operator asks the input for its shape and format only, and the result has both.
    torch.ops.aten.max_pool2d_with_indices_backward.grad_input(
        dy, dx, window.kernel, window.stride, pad, [1, 1], ceil, places, grad_input=dx
    )
    return dx if fits else torch.constant_pad_nd(dx, [-margin for margin in margins])


def mask_of(places: torch.Tensor, y: torch.Tensor, input_size: Sequence[int], window: Window) -> torch.Tensor:
    """Return the places of the maxima y as row * width + column of the image.

    They are -1 for empty windows, and where no value is above -FLT_MAX, with which Caffe begins.
    """
    mask = places
    if not window.fits_torch(input_size):
        left, right, above, _ = window.margins(input_size)
        width = input_size[1] + left + right
        mask = (places // width - above) * input_size[1] + places % width - left
        _clear_empty(mask, window.empty(input_size), -1)
    return mask.masked_fill(y <= torch.finfo(torch.float32).min, -1)


def average_forward(x: torch.Tensor, window: Window) -> torch.Tensor:
    """Each window's mean; the padding counts, but not what lies behind the padding."""
    size = x.shape[2:]
    if tuple(size) == window.kernel and not any(window.pad):
        return x.mean((2, 3), keepdim=True)
    if window.fits_torch(size):
        y: torch.Tensor = torch.ops.aten.avg_pool2d(x, window.kernel, window.stride, window.pad, window.ceil, True)
        return y
    padded = torch.constant_pad_nd(x, window.margins(size))
    total: torch.Tensor = torch.ops.aten.avg_pool2d(padded, window.kernel, window.stride, divisor_override=1)
    return total * _inverse_divisors(size, window, x)


def average_backward(
    dy: torch.Tensor, input_shape: Sequence[int], memory_format: torch.memory_format, window: Window
) -> torch.Tensor:
    """Return the gradient of the input: each window's gradient is spread evenly."""
    dy = dy.contiguous(memory_format=memory_format)  # PyTorch takes ten times as long with two formats
    size = input_shape[2:]
    shape = tuple(input_shape)
    if tuple(size) == window.kernel and not any(window.pad):
        dx = torch.empty(shape, dtype=dy.dtype, device=dy.device, memory_format=memory_format)
        return dx.copy_(dy / (size[0] * size[1]))
    if window.fits_torch(size):
        dx = torch.empty(shape, dtype=dy.dtype, device=dy.device, memory_format=memory_format)
        spread: torch.Tensor = torch.ops.aten.avg_pool2d_backward(
            dy, dx, window.kernel, window.stride, window.pad, window.ceil, True, None
        )
        return spread
    margins = window.margins(size)
    padded = dy.new_empty(*shape[:2], size[0] + margins[2] + margins[3], size[1] + margins[0] + margins[1])
    share = dy * _inverse_divisors(size, window, dy)
    spread = torch.ops.aten.avg_pool2d_backward(share, padded, window.kernel, window.stride, [0, 0], False, True, 1)
    return torch.constant_pad_nd(spread, [-margin for margin in margins]).contiguous(memory_format=format_of(dy))


def _inverse_divisors(size: Sequence[int], window: Window, like: torch.Tensor) -> torch.Tensor:
    """1 / (number of pixels in each window, padding included), 0 for empty windows."""
    out = window.output_size(size)
    lines = []
    for axis in (0, 1):
        start = torch.arange(out[axis]) * window.stride[axis] - window.pad[axis]
        length = (start + window.kernel[axis]).clamp(max=size[axis] + window.pad[axis]) - start
        lines.append(torch.where(start < size[axis], 1 / length.clamp(min=1).to(like.dtype), 0).to(like))
    return torch.outer(*lines)


def _clear_empty(y: torch.Tensor, empty: tuple[bool, bool], value: float) -> None:
    if empty[0]:
        y[:, :, -1, :] = value
    if empty[1]:
        y[:, :, :, -1] = value
