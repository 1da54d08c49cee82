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


def inputs(**shapes: tuple[int, ...]) -> str:
    """Input layers, one a blob."""
    return "".join(
        f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ '
        + " ".join(f"dim: {size}" for size in shape)
        + " } } }\n"
        for name, shape in shapes.items()
    )
