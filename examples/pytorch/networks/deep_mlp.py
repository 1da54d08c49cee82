"""A perceptron of many small layers, whose gradients are many small messages."""

from __future__ import annotations

import torch
from torch import nn


class DeepMlp(nn.Module):
    """Takes (N, width), returns (N, width): 60 layers of 64 KB each, each added to its input."""

    def __init__(self, width: int = 128, layers: int = 60) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last layer's value."""
        for layer in self.layers:
            x = x + layer(x).relu() / len(self.layers)
        return x
