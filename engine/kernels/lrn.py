"""Local response normalisation across channels and within a channel.

Shapes: x, y, dy and dx (N, C, H, W); scale has the shape and format of x.

Across channels everything happens in pieces that stay in the processor's cache, since each of the ten or so
elementary passes over a large blob would otherwise wait for memory. A piece is a matrix whose rows hold all the
channels of something: of an image, plane after plane, or, channels last, of a pixel. Its rows are laid into a
buffer with zeros before and behind; then the sum over a window of channels is the sum of a few shifted views of
the buffer, each of them one run through memory: five channels are one and twice two, and sums of two are made once.
"""

from __future__ import annotations

import torch

from mgcaffe.engine.kernels.formats import dense, format_of, pixel_rows

_VALUES_PER_PIECE = 1 << 18


class _ChannelWindows:
    """Sums over `size` neighbouring channels, for pieces of blobs like x.

    Attributes:
        piece: how many rows one piece has.
    """

    def __init__(self, x: torch.Tensor, size: int) -> None:
        """Lay out the buffer. The stride between channels inside a row is 1, or a plane's size."""
        self._size = size = min(size, 2 * x.shape[1] + 1)  # a larger window holds no more channels
        self._step = 1 if format_of(x) == torch.channels_last else x.shape[2] * x.shape[3]
        self._width = x.shape[1] * self._step
        self._margin = size // 2 * self._step
        rows = x.numel() // max(self._width, 1)
        fitting = max(1, _VALUES_PER_PIECE // max(self._width, 1))
        self.piece = min(rows, fitting) if x.device.type == "cpu" else rows
        padded = self._width + 2 * self._margin
        self._buffer = x.new_zeros(self.piece * padded + 2 * self._margin)
        self._total = x.new_empty(self.piece * padded)
        self._sums = [torch.empty_like(self._buffer) for _ in range(2 if size > 1 else 0)]

    def rows(self, x: torch.Tensor) -> torch.Tensor:
        """Return a dense blob as the matrix that is cut into pieces; a view."""
        if self._step == 1 and x.dim() == 4 and x.shape[2] * x.shape[3] != 1:
            return pixel_rows(x)
        return x.reshape(x.shape[0], self._width)

    def inputs(self, count: int) -> torch.Tensor:
        """Return where to write the values of a piece of `count` rows before `sums` is called."""
        padded = self._width + 2 * self._margin
        return self._buffer[: count * padded].view(count, padded)[:, self._margin : self._margin + self._width]

    def sums(self, count: int) -> torch.Tensor:
        """Return the window sums of what `inputs` holds."""
        padded = self._width + 2 * self._margin
        length = count * padded
        # By the bits of the size: `sums` holds sums over `width` channels, `total` those over the first `summed`.
        total, sums = self._buffer[:length], self._buffer[: length + 2 * self._margin]
        summed = width = 1
        while summed < self._size:
            shift = width * self._step
            target = self._sums[width.bit_length() % 2][: len(sums) - shift]
            sums = torch.add(sums[:-shift], sums[shift:], out=target)
            width *= 2
            if self._size & width:
                part = sums[summed * self._step :][:length]
                total = torch.add(total, part, out=self._total[:length])
                summed += width
        # A row's last entries have met the next row; they belong to no channel.
        return total.view(count, padded)[:, : self._width]


def across_forward(
    x: torch.Tensor, size: int, alpha: float, beta: float, k: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """y = x scale^-beta, and scale = k + alpha / size * (sum of x^2 over `size` channels around each)."""
    x = dense(x)
    y, scale = torch.empty_like(x), torch.empty_like(x)
    windows = _ChannelWindows(x, size)
    offset = x.new_full((), k)
    pieces = (windows.rows(blob).split(windows.piece) for blob in (x, y, scale))
    for x_piece, y_piece, scale_piece in zip(*pieces, strict=True):
        count = x_piece.shape[0]
        torch.mul(x_piece, x_piece, out=windows.inputs(count))
        torch.add(offset, windows.sums(count), alpha=alpha / size, out=scale_piece)
        _inverse_power(scale_piece, beta, out=y_piece).mul_(x_piece)
    return y, scale


def across_backward(
    dy: torch.Tensor,
    x: torch.Tensor,
    scale: torch.Tensor,
    size: int,
    alpha: float,
    beta: float,
    overwrite: bool = False,
) -> torch.Tensor:
    """dx = dy scale^-beta - 2 alpha beta / size * x * (window sum of dy y / scale).

    With `overwrite`, dx may lie where dy was.
    """
    memory_format = format_of(scale)
    x, dy = x.contiguous(memory_format=memory_format), dy.contiguous(memory_format=memory_format)
    dx = dy if overwrite else torch.empty_like(scale)
    windows = _ChannelWindows(scale, size)
    power = scale.new_empty(windows.piece, windows.rows(scale).shape[1])
    pieces = (windows.rows(blob).split(windows.piece) for blob in (dy, x, scale, dx))
    for dy_piece, x_piece, scale_piece, dx_piece in zip(*pieces, strict=True):
        count = x_piece.shape[0]
        _inverse_power(scale_piece, beta, out=power[:count])
        torch.mul(dy_piece, power[:count], out=dx_piece)
        ratio = torch.mul(dx_piece, x_piece, out=power[:count])
        torch.div(ratio, scale_piece, out=windows.inputs(count))
        dx_piece.addcmul_(x_piece, windows.sums(count), value=-2 * alpha * beta / size)
    return dx


def within_forward(x: torch.Tensor, size: int, alpha: float, beta: float) -> tuple[torch.Tensor, torch.Tensor]:
    """y = x scale^-beta, and scale = 1 + alpha * (mean of x^2 over size x size pixels, zeros outside)."""
    scale = _pixel_mean(x * x, size).mul_(alpha).add_(1)
    return _inverse_power(scale, beta, out=torch.empty_like(scale)).mul_(x), scale


def within_backward(
    dy: torch.Tensor, x: torch.Tensor, scale: torch.Tensor, size: int, alpha: float, beta: float
) -> torch.Tensor:
    """dx = dy scale^-beta - 2 alpha beta x * (mean of dy y / scale): the window's mean is its own adjoint."""
    dx = _inverse_power(scale, beta, out=torch.empty_like(scale)).mul_(dy)
    ratio = (dx * x).div_(scale)
    return dx.addcmul_(x, _pixel_mean(ratio, size), value=-2 * alpha * beta)


def _inverse_power(scale: torch.Tensor, beta: float, out: torch.Tensor) -> torch.Tensor:
    """scale^-beta, by square roots where beta is 0.75 or 0.5: several times faster than a power."""
    if beta == 0.75:
        return torch.sqrt(scale, out=out).mul_(scale).rsqrt_()
    if beta == 0.5:
        return torch.rsqrt(scale, out=out)
    return torch.pow(scale, -beta, out=out)


def _pixel_mean(x: torch.Tensor, size: int) -> torch.Tensor:
    fitting = min(size, 2 * max(x.shape[2:]) + 1)  # a larger window holds no more pixels, and more zeros
    mean: torch.Tensor = torch.ops.aten.avg_pool2d(x, [fitting], [1], [fitting // 2])
    return mean if fitting == size else mean.mul_((fitting / size) ** 2)
