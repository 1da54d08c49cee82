"""Finds out which convolutions and inner products a net computes, layer by layer, on random tensors.

Each layer runs forward and backward once, with its own parameters, and blobs of its real shapes in the net's memory
format. The net itself, its values, gradients, random stream and data, stays as it is; the memory needed beyond it is
that of one layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from mgcaffe.engine.graph.node import Node
from mgcaffe.engine.kernels.choice.choices import Choices
from mgcaffe.engine.kernels.choice.survey import Survey
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layers.convolution import FilterLayer
from mgcaffe.engine.layers.inner_product import InnerProduct
from mgcaffe.engine.net import Net
from mgcaffe.engine.types import Shape


@dataclass(frozen=True)
class LayerOperations:
    """A layer, and what it computes that there is a choice for.

    Attributes:
        name, type: the layer's.
        operations: the texts by which records call its operations, in the order in which they run.
    """

    name: str
    type: str
    operations: Sequence[str]


def let_cudnn_measure(device: torch.device, measures: bool) -> None:
    """Let cuDNN choose its algorithm for each new shape by measuring them, or by its own rules; in the whole process.

    Args:
        device: where nets compute; nothing is set for a CPU.
        measures: whether to measure: then the order of sums, and so the last bits, may differ from run to run.
    """
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = measures


def tune(net: Net, survey: Survey) -> list[LayerOperations]:
    """Run every layer that has a choice under a survey, or a `Contest`, which measures; of alike layers one.

    Args:
        net: as it will run: fused layers run as one.
        survey: takes what they ask for.

    Returns:
        The layers that have a choice, in order.
    """
    found: list[LayerOperations] = []
    known: dict[object, Sequence[str]] = {}
    for node in net.steps:
        members = getattr(node.layer, "members", [node.layer])
        tunable = next((each for each in members if isinstance(each, FilterLayer | InnerProduct)), None)
        if tunable is None or any(0 in shape for shape in node.shapes):
            continue
        kind = _kind(node, members)
        if kind not in known:
            survey.layer, survey.met = f"layer '{tunable.name}'", []
            with _lent(node.layer, members), _choosing(net, survey):
                _run(node, net)
            known[kind] = list(survey.met)
        found.append(LayerOperations(tunable.name, tunable.type, known[kind]))
    return found


def _kind(node: Node, members: Sequence[Layer]) -> object:
    """Return all that the operations of a layer depend on."""
    layers = tuple((type(each), _fields(each), tuple(p.wanted for p in each.parameters)) for each in members)
    return layers, tuple(map(tuple, node.shapes)), tuple(node.wants), node.needs_backward


def _fields(layer: Layer) -> bytes:
    """Return the layer's message without its names."""
    param = type(layer.param)()
    param.CopyFrom(layer.param)
    for name in ("name", "bottom", "top", "param", "blobs"):
        param.ClearField(name)
    text: bytes = param.SerializeToString(deterministic=True)
    return text


@contextmanager
def _choosing(net: Net, choices: Choices) -> Iterator[None]:
    kept, net.context.choices = net.context.choices, choices
    try:
        yield
    finally:
        net.context.choices = kept


@contextmanager
def _lent(layer: Layer, members: Sequence[Layer]) -> Iterator[None]:
    """Give the layer gradients of its own for a while, and random values in the place of parameters that are zero.

    It keeps its bottom, as long as the layer that could make it again does not run.
    """
    layers = [layer, *(each for each in members if each is not layer)]
    parameters = [each for one in members for each in one.parameters]
    values = [(each.data, each.diff, each.fresh) for each in parameters]
    states = [(each.saved, each.may_overwrite_top_diff) for each in layers]
    makers = [(each, each.make_bottom) for each in members if isinstance(each, FilterLayer)]
    try:
        for filters, _ in makers:
            filters.make_bottom = None
        for number, parameter in enumerate(parameters):
            # Zeros would hide differences; a weight of many megabytes is not doubled without need. A variance that is
            # random may be negative.
            if not parameter.measured and not parameter.data.any():
                parameter.data = _random(parameter.shape, parameter.data, parameter.memory_format, number)
            if parameter.wanted:
                parameter.diff = torch.empty_like(parameter.data)
            parameter.fresh = True
        yield
    finally:
        for parameter, (data, diff, fresh) in zip(parameters, values, strict=True):
            parameter.data, parameter.diff, parameter.fresh = data, diff, fresh
        for each, (saved, may_overwrite) in zip(layers, states, strict=True):
            each.saved, each.may_overwrite_top_diff = saved, may_overwrite
        for filters, make_bottom in makers:
            filters.make_bottom = make_bottom


def _run(node: Node, net: Net) -> None:
    """Run the layer once in each direction that the net will run it in."""
    like = torch.empty(0, dtype=net.dtype, device=net.device)
    bottoms = [
        _random(shape, like, net.context.memory_format, 100 + number) for number, shape in enumerate(node.shapes)
    ]
    net.context.runs_again = True  # statistics that a normalization measures stay as they are
    try:
        tops = node.layer.forward(bottoms)
    finally:
        net.context.runs_again = False
    if node.needs_backward:
        node.layer.may_overwrite_top_diff = [False] * len(tops)
        noise = [_random(tuple(top.shape), like, torch.contiguous_format, 200) for top in tops]
        diffs = [torch.empty_like(top).copy_(values) for top, values in zip(tops, noise, strict=True)]
        node.layer.backward(diffs, node.wants)


def _random(shape: Shape, like: torch.Tensor, memory_format: torch.memory_format, seed: int) -> torch.Tensor:
    """Return a tensor of random numbers; the same every time, and none of the net's random stream."""
    generator = torch.Generator(device=like.device).manual_seed(seed)
    last = memory_format if len(shape) == 4 else torch.contiguous_format
    values = torch.empty(tuple(shape), dtype=like.dtype, device=like.device, memory_format=last)
    return values.normal_(generator=generator)
