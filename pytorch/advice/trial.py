"""Iterations with DistributedDataParallel itself, on parameters that stand in for those of a module."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgcaffe.pytorch.advice.bucket_rules import MIB, BucketRules
from mgcaffe.pytorch.measuring.sample import SampleBatch
from mgcaffe.pytorch.measuring.stand_in import StandIn

_WARM_UP = 3
"""Iterations that are not counted: DistributedDataParallel makes its buckets anew in the second one."""


def time_iterations(
    model: DistributedDataParallel, rules: BucketRules, stand_in: StandIn, sample: SampleBatch, iterations: int
) -> list[float]:
    """Return the seconds of iterations on this rank with buckets of one's choice; a collective call.

    Iterations reduce gradients over the module's process group. Where one fails on a rank, that rank raises at once,
    and the others wait in DistributedDataParallel's all-reduce: until that rank's process ends (gloo), or the group's
    own time-out (NCCL). `check_pass` before it finds what fails without DistributedDataParallel as well.

    Args:
        model: the module as it is wrapped, whose other options hold.
        rules: how buckets are made.
        stand_in: the parameters, used for nothing afterwards: what DistributedDataParallel registers stays with them.
        sample: this rank's batch.
        iterations: how many to run, beside some that are not counted.
    """
    seconds: list[float] = []
    with stand_in.untouched(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of unused parameters that were not found: as the module's user asked
        trial = DistributedDataParallel(
            _Shadow(stand_in, sample),
            process_group=model.process_group,
            broadcast_buffers=False,
            init_sync=False,
            find_unused_parameters=model.find_unused_parameters,
            gradient_as_bucket_view=model.gradient_as_bucket_view,
            static_graph=model.static_graph,
            **_bucket_options(rules),
        )
        for _ in range(_WARM_UP + iterations):
            stand_in.clear_gradients()
            began = _now(stand_in.device)
            stand_in.run(_step_of(trial))
            seconds.append(_now(stand_in.device) - began)
    return seconds[_WARM_UP:]


def check_pass(stand_in: StandIn, sample: SampleBatch) -> None:
    """Run a pass on this rank alone."""
    with stand_in.untouched():
        stand_in.run(lambda module: sample.call(module).backward())


class _Shadow(nn.Module):
    """A module that has the parameters that stand in, and computes what the module does that is given to it."""

    def __init__(self, stand_in: StandIn, sample: SampleBatch) -> None:
        super().__init__()
        self._sample = sample
        for number, each in enumerate(stand_in.trained.values()):
            self.register_parameter(f"parameter{number}", each)

    def forward(self, hidden: _Hidden) -> torch.Tensor:
        """Return the loss."""
        return self._sample.call(hidden.module)


class _Hidden:
    """A module as an argument, into which DistributedDataParallel does not look for tensors."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module


def _step_of(trial: DistributedDataParallel) -> Callable[[nn.Module], None]:
    def step(module: nn.Module) -> None:
        trial(_Hidden(module)).backward()

    return step


def _bucket_options(rules: BucketRules) -> dict[str, Any]:
    """Return the arguments that lead to these rules."""
    if rules.name.startswith("bucket_cap_mb_list"):
        return {"bucket_cap_mb_list": [limit / MIB for limit in rules.limits]}
    return {} if len(rules.limits) > 1 else {"bucket_cap_mb": rules.limits[0] / MIB}


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
