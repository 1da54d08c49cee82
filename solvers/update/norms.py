"""L2 norms and dot products of slices of the arena."""

from __future__ import annotations

import torch

_PIECE = 1 << 19


def l2_norm(values: torch.Tensor) -> torch.Tensor:
    """Compute the L2 norm of a flat tensor, as a scalar tensor in float64.

    The squares of 61 M float32 values lose digits in one float32 sum on a CPU; a GPU adds them up as a tree.
    """
    pieces = values.split(_PIECE) if values.is_cpu else [values]
    parts = [torch.linalg.vector_norm(piece) for piece in pieces]
    norm: torch.Tensor = torch.linalg.vector_norm(torch.stack(parts).double())
    return norm


def dot(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the dot product of two flat tensors of one length, as a scalar tensor in float64."""
    parts = [
        torch.dot(left.double(), right.double())
        for left, right in zip(one.split(_PIECE), other.split(_PIECE), strict=True)
    ]
    return torch.stack(parts).sum()
