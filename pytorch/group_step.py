"""An optimizer's step for each group of gradients as it comes, while later groups are still on their way."""

from __future__ import annotations

import torch
from torch import nn


class StepOnGroups:
    """Update a group's parameters as soon as their gradients are means: an `on_group` of `MergedGradientParallel`.

    It calls the optimizer's `step()` with the group's parameters alone, so any optimizer will do that treats every
    parameter by itself (SGD, Adam, AdamW), with the same bits as one step for all. Don't call `step()` besides. What
    needs all gradients before the first update cannot be done: clipping by their norm, `GradScaler`.

    Args:
        optimizer: the optimizer.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer

    def __call__(self, parameters: list[nn.Parameter]) -> None:
        """Update these parameters."""
        wanted = {id(each) for each in parameters}
        groups = self._optimizer.param_groups
        everything = [group["params"] for group in groups]
        try:
            for group in groups:
                group["params"] = [each for each in group["params"] if id(each) in wanted]
            self._optimizer.step()
        finally:
            for group, parameters_of_group in zip(groups, everything, strict=True):
                group["params"] = parameters_of_group
