"""PyTorch's own convolution, over a geometry."""

from __future__ import annotations

import torch

from mgcaffe.engine.kernels.geometry import Geometry


def convolve(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, geometry: Geometry) -> torch.Tensor:
    """Return x * weight + bias."""
    walk = (geometry.stride, geometry.pad, geometry.dilation)
    return torch.convolution(x, weight, bias, *walk, False, [0] * geometry.rank, geometry.groups)


def convolution_backward(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, geometry: Geometry, wanted: list[bool]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of x, weight and bias, those that are wanted."""
    walk = (geometry.stride, geometry.pad, geometry.dilation)
    no_pad = [0] * geometry.rank
    gradients: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = torch.ops.aten.convolution_backward(
        dy, x, weight, None, *walk, False, no_pad, geometry.groups, wanted
    )
    return gradients
