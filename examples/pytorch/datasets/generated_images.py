"""Images that are generated: noisy stripes in one of ten directions, which is the class."""

from __future__ import annotations

import math

import torch

CLASSES = 10
_NOISE = 0.5


def striped_images(count: int, generator: torch.Generator, size: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images (count, 3, size, size) and their classes (count); stripes differ in colour, width and place."""
    labels = torch.randint(CLASSES, (count,), generator=generator)
    angle = (labels * math.pi / CLASSES).view(-1, 1, 1)
    width, phase = torch.rand(2, count, 1, 1, generator=generator)
    row, column = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    along = column * angle.cos() + row * angle.sin()
    stripes = (along * (0.4 + 0.6 * width) + 2 * math.pi * phase).sin()
    colour = 0.5 + torch.rand(count, 3, 1, 1, generator=generator)
    noise = torch.randn(count, 3, size, size, generator=generator)
    return stripes[:, None] * colour + _NOISE * noise, labels
