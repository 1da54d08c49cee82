"""A language model of words: one huge embedding at the front, and an LSTM behind it."""

from __future__ import annotations

import torch
from torch import nn


class LstmLanguageModel(nn.Module):
    """Takes tokens (N, T), returns the logits of what follows each, (N, T, vocabulary).

    The embedding's weights are the output's as well (Press and Wolf, 2017), so that its gradient, 41 of 58 MB, is the
    last to be complete.
    """

    def __init__(self, vocabulary: int = 20000, width: int = 512, layers: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, vocabulary)
        self.head.weight = self.embedding.weight
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits; the state begins with zeros."""
        values, _ = self.lstm(self.embedding(tokens))
        return self.head(values)
