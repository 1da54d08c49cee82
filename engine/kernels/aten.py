"""PyTorch's own operators: convolution over a geometry, and backward operators that may write over their gradient."""

from __future__ import annotations

from typing import Any

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
        dy, x, weight, [dy.shape[1]], *walk, False, no_pad, geometry.groups, wanted
    )
    return gradients


def run_backward(
    operator: Any, dy: torch.Tensor, *arguments: Any, out: torch.Tensor | None, **options: Any
) -> torch.Tensor:
    """Call one of PyTorch's backward operators, in place if `out` is given."""
    if out is not None:
        operator, options = operator.grad_input, {**options, "grad_input": out}
    dx: torch.Tensor = operator(dy, *arguments, **options)
    return dx
