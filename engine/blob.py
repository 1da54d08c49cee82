"""A named value that flows between layers, and the gradient that flows back."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from mgcaffe.engine.types import Shape


@dataclass(eq=False)
class Blob:
    """A blob of a net. `data` and `diff` are None before they exist and after the net has freed them."""

    name: str
    shape: Shape = ()
    data: torch.Tensor | None = field(default=None, repr=False)
    diff: torch.Tensor | None = field(default=None, repr=False)

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)
