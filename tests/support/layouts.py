"""Inputs in every layout that a net can hand to a layer."""

import torch

LAYOUTS = ("contiguous", "channels_last", "narrowed")


def random_input(shape: tuple[int, ...], layout: str = "contiguous", seed: int = 5) -> torch.Tensor:
    """A float64 tensor of that shape; `narrowed` is a part of a larger one, so that its strides have gaps."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    if layout == "channels_last" and len(shape) == 4:
        return values.contiguous(memory_format=torch.channels_last)
    if layout == "narrowed" and len(shape) > 1:
        wider = torch.full((shape[0], shape[1] + 3, *shape[2:]), float("nan"), dtype=torch.float64)
        wider[:, 1 : shape[1] + 1] = values
        return wider.narrow(1, 1, shape[1])
    return values
