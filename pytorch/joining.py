"""Uneven inputs: a rank that has none left takes part in what the others still do, with gradients of zero."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from mgcaffe.comm import Communicator
from mgcaffe.pytorch.failures import naming_causes
from mgcaffe.pytorch.gradient_flow import GradientFlow
from mgcaffe.pytorch.module_state import ModuleState
from mgcaffe.pytorch.ranks import shared_group


class ShadowHook(JoinHook):
    """The hook of a module that has joined.

    Args:
        module: the module.
    """

    def __init__(self, module: UnevenInputs) -> None:
        super().__init__()
        self._module = module

    def main_hook(self) -> None:
        """Take part in one iteration of the ranks that have inputs."""
        self._module.shadow_iteration()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Take over the final parameters."""
        self._module.take_final_state(is_last_joiner)


class UnevenInputs(Joinable):
    """What `MergedGradientParallel` has for ranks with unequal numbers of batches, and what it needs of it for that."""

    broadcast_buffers: bool
    _process_group: dist.ProcessGroup | Communicator | None
    _state: ModuleState
    _broadcasts_next: bool

    @property
    @abstractmethod
    def _flow(self) -> GradientFlow:
        """The gradients on their way."""

    @property
    @abstractmethod
    def _ranks(self) -> Communicator:
        """All ranks."""

    @abstractmethod
    def _will_broadcast(self) -> bool:
        """Return whether the next forward pass broadcasts buffers."""

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Join:
        """Return the context in which ranks may have unequal numbers of batches; arguments as for DDP.

        Raises:
            CommError: the ranks share no process group of torch.distributed.
        """
        return Join(
            [self],
            enable,
            throw_on_early_termination,
            divide_by_initial_world_size=divide_by_initial_world_size,
        )

    def join_hook(self, **keywords: Any) -> ShadowHook:
        """Return what a rank does that has no inputs left."""
        self._flow.divides_by_all = keywords.get("divide_by_initial_world_size", True)
        return ShadowHook(self)

    @property
    def join_device(self) -> torch.device:
        """The device on which ranks that still have inputs are counted."""
        return self._state.averaged[0].parameter.device

    @property
    def join_process_group(self) -> dist.ProcessGroup:
        """The process group in which they are counted."""
        return shared_group(self._process_group)

    def shadow_iteration(self) -> None:
        """Take part in an iteration of the ranks that still have inputs."""
        with naming_causes(self._ranks):
            if self._will_broadcast():
                self._state.broadcast_buffers(self._ranks, highest_rank(self._ranks, False))
            averages, self._flow.alive = agree_on_averaging(self._ranks, has_inputs=False)
        if averages:
            self._flow.average_zeros()
        self._broadcasts_next = averages

    def take_final_state(self, is_last: bool) -> None:
        """Take over the values of the rank that had inputs for longest."""
        with naming_causes(self._ranks):
            self._state.take(self._ranks, highest_rank(self._ranks, is_last), buffers=self.broadcast_buffers)
        self._flow.alive = self._ranks.size
        self._flow.divides_by_all = True


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
