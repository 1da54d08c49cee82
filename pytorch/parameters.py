"""Which parameters of a module are averaged, and what makes a module one that cannot be."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter

import torch
from torch import nn

from mgcaffe.errors import UsageError

MAX_NAMES = 10
"""How many parameters a message names."""

_DTYPE = attrgetter("dtype")


@dataclass(frozen=True)
class NamedParameter:
    """A parameter that is averaged.

    Attributes:
        index: its number, in the order of `named_parameters()`.
        name: as there.
        parameter: the parameter.
        group: the pattern of `own_group` that it falls under; empty: none.
    """

    index: int
    name: str
    parameter: nn.Parameter
    group: str = ""


def excluded_names(module: nn.Module, patterns: Sequence[str]) -> frozenset[str]:
    """Return the names of the parameters and buffers that patterns exclude, or the module itself as for DDP.

    Raises:
        UsageError: a pattern that fits no name.
    """
    names = [name for name, _ in [*module.named_parameters(), *module.named_buffers()]]
    found = {name for name in names if _first_match(name, patterns)}
    _check_patterns("exclude", patterns, names)
    return frozenset(found | set(getattr(module, "_ddp_params_and_buffers_to_ignore", ())))


def averaged_parameters(
    module: nn.Module, excluded: frozenset[str], own_group: Sequence[str]
) -> tuple[NamedParameter, ...]:
    """Return the parameters that train and are not excluded; a shared one counts once, under its first name.

    Args:
        module: the module.
        excluded: names that are left alone.
        own_group: patterns of names; the parameters that one of them fits are reduced apart from all others.

    Raises:
        UsageError: no parameter is left, one has no memory yet, lies on a device with no memory, or will have a
            sparse gradient; parameters lie on devices of several types; a pattern that fits no name.
    """
    wanted = [(name, each) for name, each in module.named_parameters() if name not in excluded]
    for name, parameter in wanted:
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise UsageError(
                f"parameter '{name}' is not initialized", hint="run a forward pass of the module before it is wrapped"
            )
        if parameter.device.type == "meta":
            raise UsageError(f"parameter '{name}' lies on the device 'meta', which has no memory", hint="use to_empty")
    found = [
        NamedParameter(index, name, parameter, _first_match(name, own_group))
        for index, (name, parameter) in enumerate(
            (name, parameter) for name, parameter in wanted if parameter.requires_grad and parameter.numel()
        )
    ]
    if not found:
        raise UsageError("the module has no parameter that requires a gradient, so there is nothing to average")
    _check_patterns("own_group", own_group, [each.name for each in found])
    _check_devices(found)
    _check_dense(module, {id(each.parameter) for each in found})
    return tuple(found)


def name_parameters(names: Iterable[str]) -> str:
    """Return up to ten names for a message."""
    listed = [f"'{name}'" for name in names]
    more = len(listed) - MAX_NAMES
    return ", ".join(listed[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")


def _first_match(name: str, patterns: Sequence[str]) -> str:
    return next((pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern)), "")


def _check_patterns(argument: str, patterns: Sequence[str], names: Sequence[str]) -> None:
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise UsageError(f"{argument}: no name fits '{pattern}'", hint=f"names are {name_parameters(names)}")


def _check_devices(parameters: Sequence[NamedParameter]) -> None:
    first = parameters[0]
    for each in parameters:
        if each.parameter.device.type != first.parameter.device.type:
            raise UsageError(
                f"parameter '{each.name}' lies on {each.parameter.device}, '{first.name}' on {first.parameter.device}",
                hint="move the whole module to devices of one type",
            )


def _check_dense(module: nn.Module, averaged: set[int]) -> None:
    for name, part in module.named_modules():
        if getattr(part, "sparse", False) is True and isinstance(part, nn.Embedding | nn.EmbeddingBag):
            if id(part.weight) in averaged:
                raise UsageError(
                    f"'{name}' has sparse gradients, which cannot be averaged in one flat buffer",
                    hint=f"set sparse=False, or exclude='{name}.weight'",
                )


class Placement:
    """The types and devices that gradients are laid out for.

    Args:
        parameters: as they are when the module is wrapped.
    """

    def __init__(self, parameters: Sequence[NamedParameter]) -> None:
        self._parameters = parameters
        self._places = [(each.parameter.dtype, each.parameter.device) for each in parameters]
        self._tensors = [each.parameter for each in parameters]
        self._known = self._seen()

    def check(self) -> None:
        """Make sure that parameters are still of these types and on these devices.

        Raises:
            UsageError: one is not.
        """
        if self._seen() == self._known:
            return
        for each, (dtype, device) in zip(self._parameters, self._places, strict=True):
            parameter = each.parameter
            if parameter.device != device or parameter.dtype != dtype:
                raise UsageError(
                    f"parameter '{each.name}' is {parameter.dtype} on {parameter.device} now, and was {dtype} on"
                    f" {device} when the module was wrapped",
                    hint="move or convert the module first, and wrap it then",
                )

    def _seen(self) -> tuple[list[torch.dtype], list[int]]:
        """Return what changes with types and devices; quick, since it is asked for before each forward pass.

        To compare `torch.device` objects takes four times as long.
        """
        return list(map(_DTYPE, self._tensors)), list(map(torch.Tensor.get_device, self._tensors))
