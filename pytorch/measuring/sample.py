"""A sample batch: what a module is called with while it is measured, and what its backward pass begins from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from mgcaffe.errors import UsageError, describe_exception
from mgcaffe.pytorch.autograd_graph import find_tensors

Loss = Callable[[Any], torch.Tensor]
"""Makes a tensor of one element of what a module returns."""


class SampleBatch:
    """The arguments of one call of a module.

    Args:
        batch: a tensor, a tuple or list of arguments, or a dict of keyword arguments.
        loss: makes a scalar of the module's output; None: the sum of all tensors in it that have gradients.

    Raises:
        UsageError: the batch is something else.
    """

    def __init__(self, batch: Any, loss: Loss | None = None) -> None:
        self._loss = loss
        self._arguments: tuple[Any, ...] = ()
        self._keywords: dict[str, Any] = {}
        if isinstance(batch, torch.Tensor):
            self._arguments = (batch,)
        elif isinstance(batch, tuple | list):
            self._arguments = tuple(batch)
        elif isinstance(batch, Mapping):
            self._keywords = dict(batch)
        else:
            raise UsageError(
                f"sample_batch is of type {type(batch).__name__}",
                hint="give what the module is called with: a tensor, a tuple of arguments, or a dict of keywords",
            )

    def call(self, module: nn.Module) -> torch.Tensor:
        """Return the loss of a forward pass.

        Raises:
            UsageError: the forward pass or the loss fails, or the loss is no scalar with a gradient.
        """
        try:
            output = module(*self._arguments, **self._keywords)
        except Exception as error:
            raise UsageError(
                f"the module fails on the sample batch: {describe_exception(error)}",
                hint="give a batch as the training loop does, on the module's device",
            ) from error
        return self._scalar(output)

    def _scalar(self, output: Any) -> torch.Tensor:
        if self._loss is None:
            tensors = list(find_tensors(output))
            if not tensors:
                raise UsageError(
                    "no tensor in what the module returns has a gradient",
                    hint="give loss=, a function that makes a scalar of it, or let parameters require gradients",
                )
            return torch.stack([_sum(each, tensors[0].device) for each in tensors]).sum()
        try:
            value = self._loss(output)
        except Exception as error:
            raise UsageError(f"loss fails on what the module returns: {describe_exception(error)}") from error
        if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
            shown = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
            without = " without a gradient" if isinstance(value, torch.Tensor) and not value.requires_grad else ""
            raise UsageError(
                f"loss returns {shown}{without}", hint="it should return a tensor of one element to descend"
            )
        return value


def _sum(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return (tensor.abs() if tensor.is_complex() else tensor).sum().to(device, torch.float32)
