"""What was captured of a pass through neighbouring layers, and the functions that replay it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from mgcaffe.engine.blob import Blob
from mgcaffe.engine.capture.program import Values, compile_calls
from mgcaffe.engine.capture.recorder import Call
from mgcaffe.engine.parameter import Parameter


@dataclass
class CapturedPass:
    """A pass both ways.

    Attributes:
        inputs: the slots of the values that the layers read.
        forward, backward: the calls of each layer, in the order in which they run.
        exposed: for each layer, the blobs that get a value for the net and for layers elsewhere, with its slot.
        gradients: the blobs that layers elsewhere give a gradient to, with its slot, shape, strides and type.
        handed_on: the blobs that get one from backward, with its slot.
        written: each layer's parameters that are not `fresh` after its backward, layers in backward's order.
    """

    inputs: list[int]
    forward: list[list[Call]] = field(default_factory=list)
    backward: list[list[Call]] = field(default_factory=list)
    exposed: list[dict[Blob, int]] = field(default_factory=list)
    gradients: list[tuple[Blob, int, torch.Size, tuple[int, ...], torch.dtype]] = field(default_factory=list)
    handed_on: list[tuple[Blob, int]] = field(default_factory=list)
    written: list[list[Parameter]] = field(default_factory=list)


@dataclass
class PassProgram:
    """A captured pass made into functions, one for each layer and direction.

    Attributes:
        captured: what they were made of.
        count: how many slots there are.
        spent: those of exposed values that backward does not read.
        needed: those that a call reads, or that are handed on; others need not be kept.
    """

    captured: CapturedPass
    count: int
    spent: list[int]
    needed: frozenset[int]
    forward: list[Callable[[Values], None]]
    backward: list[Callable[[Values], None]]


def compile_pass(captured: CapturedPass, count: int) -> PassProgram:
    """Make the functions of a captured pass that has `count` slots."""
    exposed = {slot for blobs in captured.exposed for slot in blobs.values()}
    handed_on = {slot for _, slot in captured.handed_on}
    read = handed_on.union(*(call.read for calls in captured.backward for call in calls))
    spent = exposed - read
    # Exposed values that backward reads are dropped there, after the last call that does.
    functions = compile_calls([*captured.forward, *captured.backward], spent | handed_on)
    needed = exposed | read
    needed.update(*(call.read for calls in captured.forward for call in calls))
    steps = len(captured.forward)
    return PassProgram(captured, count, [*spent], frozenset(needed), functions[:steps], functions[steps:])
