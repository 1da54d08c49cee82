"""A net of three convolutions for images of 8 x 8 pixels."""

from __future__ import annotations

from torch import nn


class DigitsNet(nn.Sequential):
    """Takes (N, 1, 8, 8), returns (N, 10): the logits of ten classes. 25,866 parameters, as examples/digits."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(256, 10),
        )
