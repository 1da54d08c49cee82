"""Nets from text, for tests."""

from __future__ import annotations

from typing import Any

import torch

from mgcaffe.engine.net import Net
from mgcaffe.prototxt import NetParameter, parse_text


def make_net(text: str, **options: Any) -> Net:
    """A net in float64 with a fixed seed, unless the options say otherwise."""
    options = {"dtype": torch.float64, "seed": 1701, **options}
    return Net(parse_text(text, NetParameter), **options)


def net_with_images(text: str, shape: tuple[int, ...], **options: Any) -> Net:
    """A net in float32 without gradients, whose first blob holds the same random numbers every time, channels last."""
    net = make_net(text, dtype=torch.float32, **options)
    values = torch.randn(shape, generator=torch.Generator().manual_seed(5)) * 2 + 1
    net.layers[0].values = [values.contiguous(memory_format=torch.channels_last)]
    net.clear_param_diffs()
    return net


def inputs(**shapes: tuple[int, ...]) -> str:
    """Input layers, one a blob."""
    return "".join(
        f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ '
        + " ".join(f"dim: {size}" for size in shape)
        + " } } }\n"
        for name, shape in shapes.items()
    )
