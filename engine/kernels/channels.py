"""One factor and one addend a channel, in one pass over memory, and their gradients in two.

Shapes: x, y, dy and dx (N, C, ...); factor and addend (C). A batch normalisation with mean 0 and variance 1 is just
that, and PyTorch has it fast in the ordinary memory format as well.
"""

from __future__ import annotations

import torch

from mgcaffe.engine.kernels.formats import format_of


def scale(x: torch.Tensor, factor: torch.Tensor, addend: torch.Tensor | None) -> torch.Tensor:
    """y = x factor + addend."""
    if format_of(x) == torch.channels_last and addend is not None:
        return torch.addcmul(addend.view(-1, 1, 1), x, factor.view(-1, 1, 1))
    zeros, ones = torch.zeros_like(factor), torch.ones_like(factor)
    return torch.native_batch_norm(x, factor, addend, zeros, ones, False, 0.0, 0.0)[0]


def scale_backward(
    dy: torch.Tensor, x: torch.Tensor, factor: torch.Tensor, wanted: tuple[bool, bool, bool]
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """dx, dfactor and daddend, None where `wanted` is False."""
    zeros, ones = torch.zeros_like(factor), torch.ones_like(factor)
    gradients = torch.ops.aten.native_batch_norm_backward(
        dy, x, factor, zeros, ones, None, None, False, 0.0, list(wanted)
    )
    dx, dfactor, daddend = (part if want else None for part, want in zip(gradients, wanted, strict=True))
    return dx, dfactor, daddend
