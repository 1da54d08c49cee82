"""MobileNetV2 (Sandler et al., 2018), with the structure and the names of torchvision's, whose weights it can load."""

from __future__ import annotations

import torch
from torch import nn

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, channels, number of blocks and stride of the first one."""


def _convolution(channels: int, width: int, size: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(channels, width, size, stride, size // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU6())


class Block(nn.Module):
    """Widens by 1 x 1, filters each channel by itself, narrows by 1 x 1; a way around it where sizes allow."""

    def __init__(self, channels: int, width: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = channels * expansion
        wide = [_convolution(channels, hidden)] if expansion != 1 else []
        filters = _convolution(hidden, hidden, 3, stride, groups=hidden)
        self.conv = nn.Sequential(*wide, filters, nn.Conv2d(hidden, width, 1, bias=False), nn.BatchNorm2d(width))
        self.has_way_around = stride == 1 and channels == width

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's value, with `width` channels."""
        return x + self.conv(x) if self.has_way_around else self.conv(x)


class MobileNetV2(nn.Module):
    """Takes (N, 3, H, W), returns (N, classes). 3.5 million parameters in 158 tensors with 1,000 classes."""

    def __init__(self, classes: int = 1000, dropout: float = 0.2) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(3, 32, 3, 2)]
        channels = 32
        for expansion, width, count, stride in STAGES:
            for number in range(count):
                layers.append(Block(channels, width, stride if number == 0 else 1, expansion))
                channels = width
        self.features = nn.Sequential(*layers, _convolution(channels, 1280))
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(1280, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return self.classifier(self.features(x).mean((2, 3)))
