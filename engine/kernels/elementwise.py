"""ReLU and sums over numbers of 16 bits on a CPU; over all others by PyTorch's operators.

Read as a signed integer, a number of 16 bits is negative where its sign is, and minus infinity is the largest negative
one that is a number; what lies between it and 0 is nan. So ReLUs compare integers, in less time and with the same bits
but where a ReLU gave nan (`relu_backward`): PyTorch widens every number to float32, compares, and rounds it again.

Sums have to be widened and rounded. Where values come from memory, a Xeon (family 6, model 167) then takes 8.3 ms for
2 x 6.4 million in bfloat16, and 3.5 in float32: each takes so many instructions that too few loads are in flight. In
pieces that are copied into a cache before, it takes 4.5 ms, all with one thread. The EPYC of family 26 takes as long
with pieces as without.
"""

from __future__ import annotations

import torch

from mgcaffe.engine.kernels import processor
from mgcaffe.engine.kernels.aten import run_backward
from mgcaffe.engine.kernels.precision import is_narrow

_MINUS_INFINITY = {torch.bfloat16: -(1 << 7), torch.float16: -(1 << 10)}
"""Its bits as a signed integer."""

_PIECE = 1 << 17
"""How many values a thread copies at a time."""

_WORTH_PIECES = 1 << 19
"""How many values are worth pieces."""


def relu(x: torch.Tensor) -> torch.Tensor:
    """Return max(x, 0), nan where x is."""
    if not _is_narrow_on_cpu(x):
        return torch.relu(x)
    return torch.threshold(x.view(torch.int16), _MINUS_INFINITY[x.dtype], 0).view(x.dtype)


def relu_(x: torch.Tensor) -> torch.Tensor:
    """Return x, in which max(x, 0) is now."""
    if _is_narrow_on_cpu(x):
        torch.threshold_(x.view(torch.int16), _MINUS_INFINITY[x.dtype], 0)
        return x
    return x.relu_()


def relu_backward(dy: torch.Tensor, y: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
    """Return dy where y, what a ReLU made, is positive, else 0.

    Where y is nan PyTorch's operator lets dy pass. In 16 bits on a CPU this function gives 0, as Caffe does, if the
    sign of that nan is negative, which it mostly is: PyTorch rounds nan to one with a sign.

    Args:
        dy: the gradient of y.
        y: of the same shape.
        out: dy, if it may be written over.
    """
    operator = torch.ops.aten.threshold_backward
    if dy.dtype == y.dtype and _is_narrow_on_cpu(dy):
        bits = None if out is None else out.view(torch.int16)
        return run_backward(operator, dy.view(torch.int16), y.view(torch.int16), 0, out=bits).view(dy.dtype)
    return run_backward(operator, dy, y, 0, out=out)


def _is_narrow_on_cpu(x: torch.Tensor) -> bool:
    return x.is_cpu and is_narrow(x)


def add_(total: torch.Tensor, x: torch.Tensor, alpha: float = 1) -> torch.Tensor:
    """Return total, to which alpha x of the same shape has been added."""
    if not (_is_narrow_on_cpu(total) and processor.is_intels() and _lie_alike(total, x)):
        return total.add_(x, alpha=alpha)
    size = _PIECE * torch.get_num_threads()
    copies = [total.new_empty(size) for _ in range(2)]
    in_order = [each.as_strided((each.numel(),), (1,)).split(size) for each in (total, x)]
    for pieces in zip(*in_order, strict=True):
        one, other = (copy[: len(piece)].copy_(piece) for copy, piece in zip(copies, pieces, strict=True))
        torch.add(one, other, alpha=alpha, out=pieces[0])
    return total


def _lie_alike(total: torch.Tensor, x: torch.Tensor) -> bool:
    """Return whether two tensors of the same type lie in memory in the same order without gaps, and are large."""
    if total.dtype != x.dtype or total.stride() != x.stride() or total.numel() < _WORTH_PIECES:
        return False
    is_last = total.dim() == 4 and total.is_contiguous(memory_format=torch.channels_last)
    return is_last or total.is_contiguous()
