"""Uneven inputs: a rank that has none left takes part in what the others still do, with gradients of zero."""

from __future__ import annotations

from typing import Protocol

import numpy
from torch.distributed.algorithms.join import JoinHook

from mgcaffe.comm import Communicator


class Shadowed(Protocol):
    """What a rank without inputs calls instead of passes of its own."""

    def shadow_iteration(self) -> None:
        """Take part in the others' iteration."""

    def take_final_state(self, is_last: bool) -> None:
        """Take over the parameters and buffers of the rank that had inputs for longest."""


class ShadowHook(JoinHook):
    """The hook of a module that has joined.

    Args:
        module: the module.
    """

    def __init__(self, module: Shadowed) -> None:
        super().__init__()
        self._module = module

    def main_hook(self) -> None:
        """Take part in one iteration of the ranks that have inputs."""
        self._module.shadow_iteration()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Take over the final parameters."""
        self._module.take_final_state(is_last_joiner)


def highest_rank(ranks: Communicator, counts: bool) -> int:
    """Return the highest of the ranks that count; a collective call."""
    value = numpy.array([ranks.rank if counts else -1])
    ranks.allreduce(value, "max")
    return int(value[0])


def agree_on_averaging(ranks: Communicator, *, has_inputs: bool, averages: bool = False) -> tuple[bool, int]:
    """Return whether the backward pass of the ranks with inputs averages gradients, and how many ranks these are.

    Args:
        ranks: all ranks; a collective call.
        has_inputs: whether this rank still has inputs.
        averages: whether its backward pass averages gradients.
    """
    values = numpy.array([int(has_inputs and averages), int(has_inputs)])
    ranks.allreduce(values)
    return bool(values[0]), int(values[1])
