"""Runs a module on parameters and buffers that stand in for its own, so that the module stays as it is.

The parameters share the memory of the module's, and nothing else: gradients come to them, and their hooks are not the
module's, so that neither DistributedDataParallel nor an optimizer's hooks learn of a pass. Buffers are copies, since
forward passes change them. Random numbers are those of a fork.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.func import functional_call

from mgcaffe.errors import UsageError


class StandIn:
    """The parameters and buffers that stand in.

    Args:
        module: the module; it is run in the mode, train or eval, in which it is.

    Attributes:
        module: the module.
        parameters: by name, each once; those that train require gradients.

    Raises:
        UsageError: a parameter is not initialized, or none trains.
    """

    def __init__(self, module: nn.Module) -> None:
        if not isinstance(module, nn.Module):
            raise UsageError(f"a torch.nn.Module can be measured, and this is of type {type(module).__name__}")
        self.module = module
        for name, each in module.named_parameters():
            if isinstance(each, nn.parameter.UninitializedParameter):
                raise UsageError(f"parameter '{name}' is not initialized", hint="run a forward pass first")
        self.parameters = {
            name: nn.Parameter(each.detach(), each.requires_grad) for name, each in module.named_parameters()
        }
        if not self.trained:
            raise UsageError("the module has no parameter that requires a gradient, so there is nothing to measure")
        self._buffers = {name: each.detach().clone() for name, each in module.named_buffers()}

    @property
    def trained(self) -> dict[str, nn.Parameter]:
        """The parameters that require gradients, by name, in the module's order."""
        return {name: each for name, each in self.parameters.items() if each.requires_grad}

    @property
    def device(self) -> torch.device:
        """The device of the first parameter that trains."""
        return next(iter(self.trained.values())).device

    def run(self, function: Callable[[nn.Module], Any]) -> Any:
        """Return what a function makes of the module, which has the parameters and buffers that stand in meanwhile."""
        values = {f"module.{name}": each for name, each in {**self.parameters, **self._buffers}.items()}
        with torch.enable_grad():
            return functional_call(_Caller(self.module), values, (function,))

    def clear_gradients(self) -> None:
        """Leave the parameters without gradients, as `zero_grad` does."""
        for each in self.parameters.values():
            each.grad = None

    @contextlib.contextmanager
    def untouched(self) -> Iterator[None]:
        """Leave random numbers, and gradients that reach the module's own parameters in spite of all, as they are."""
        own = [(each, each.grad) for each in self.module.parameters()]
        devices = sorted({each.device.index for each, _ in own if each.device.type == "cuda"})
        with torch.random.fork_rng(devices=devices):
            for each, _ in own:
                each.grad = None
            try:
                yield
            finally:
                for each, gradient in own:
                    each.grad = gradient
                self.clear_gradients()


class _Caller(nn.Module):
    """Calls a function with a module, so that its backward pass as well runs on what stands in."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, function: Callable[[nn.Module], Any]) -> Any:
        """Return what the function returns."""
        return function(self.module)
