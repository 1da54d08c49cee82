"""Runs one layer without a net: builds it from text, binds its parameters, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from mgcaffe.engine import fillers, registry
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.engine.types import Shape
from mgcaffe.prototxt import LayerParameter, parse_text


def make_layer(
    text: str,
    shapes: Sequence[Shape],
    *,
    dtype: torch.dtype = torch.float64,
    phase: int = 0,
    seed: int = 1701,
    context: LayerContext | None = None,
) -> tuple[Layer, list[Shape]]:
    """A layer that is ready to run, and its tops' shapes. `text` is the inside of a `layer { }`."""
    param = parse_text(text, LayerParameter)
    context = context or LayerContext(phase=phase, dtype=dtype)
    context.generator.manual_seed(seed)
    layer = registry.create(param, context)
    layer.wants_bottom = [layer.differentiable(index) for index in range(len(shapes))]
    layer.backward_follows = True
    layer.setup(shapes)
    top_shapes = layer.reshape(shapes)
    for parameter in layer.parameters:
        parameter.data = torch.zeros(parameter.shape, dtype=context.dtype)
        parameter.diff = torch.zeros(parameter.shape, dtype=context.dtype)
        fillers.fill(parameter.data, parameter.filler, context.generator)
    return layer, top_shapes


def forward_backward(
    layer: Layer, bottoms: Sequence[torch.Tensor], top_diffs: Sequence[torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Tops and bottom gradients of one pass, with nothing overwritten."""
    layer.may_overwrite_bottom = False
    layer.may_overwrite_top_diff = [False] * len(top_diffs)
    tops = layer.forward(list(bottoms))
    return tops, layer.backward(list(top_diffs), layer.wants_bottom)


def check_gradients(
    layer: Layer,
    bottoms: Sequence[torch.Tensor],
    *,
    tolerance: float = 1e-5,
) -> None:
    """Central differences in float64, over every differentiable bottom and every wanted parameter.

    The objective is sum(top * r) with random r. Asserts as well that parameter gradients accumulate:
    a second backward pass doubles them.
    """
    step = 1e-4
    generator = torch.Generator().manual_seed(3)
    layer.may_overwrite_bottom = False
    tops = layer.forward(list(bottoms))
    weights = [torch.randn(top.shape, generator=generator, dtype=top.dtype) for top in tops]
    layer.may_overwrite_top_diff = [False] * len(tops)

    def objective() -> float:
        return sum(
            float((top * weight).sum()) for top, weight in zip(layer.forward(list(bottoms)), weights, strict=True)
        )

    for parameter in layer.parameters:
        parameter.clear_diff()
    bottom_diffs = layer.backward([weight.clone() for weight in weights], layer.wants_bottom)
    targets = [
        (f"bottom {index}", bottoms[index], bottom_diffs[index])
        for index, wanted in enumerate(layer.wants_bottom)
        if wanted
    ]
    targets += [
        (f"parameter {index}", parameter.data, parameter.dense_diff().clone())
        for index, parameter in enumerate(layer.parameters)
        if parameter.wanted
    ]
    for what, values, diff in targets:
        assert diff is not None, f"{what}: no gradient"
        assert tuple(diff.shape) == tuple(values.shape), f"{what}: gradient has shape {tuple(diff.shape)}"
        for index in np.ndindex(tuple(values.shape)):
            kept = values[index].item()
            values[index] = kept + step
            above = objective()
            values[index] = kept - step
            below = objective()
            values[index] = kept
            estimate = (above - below) / (2 * step)
            found = diff[index].item()
            scale = max(abs(estimate), abs(found), 1.0)
            assert abs(estimate - found) <= tolerance * scale, f"{what}{list(index)}: {found}, expected {estimate}"
    layer.forward(list(bottoms))
    layer.backward([weight.clone() for weight in weights], layer.wants_bottom)
    for what, _, diff in targets[len(targets) - sum(p.wanted for p in layer.parameters) :]:
        parameter = layer.parameters[int(what.split()[1])]
        torch.testing.assert_close(parameter.dense_diff(), 2 * diff, msg=f"{what} does not accumulate")
