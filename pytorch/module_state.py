"""What the ranks have in common of a module: the parameters that are averaged, and values that come from one rank."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from mgcaffe.comm import Communicator
from mgcaffe.errors import UsageError
from mgcaffe.pytorch.agreement import broadcast_tensors, compare_modules, describe
from mgcaffe.pytorch.parameters import averaged_parameters, excluded_names, name_parameters


class ModuleState:
    """The parameters and buffers of a module that are not excluded.

    Args:
        module: the module.
        exclude: patterns (fnmatch) of names that are left alone.
        own_group: patterns of names of parameters that are reduced apart from all others.

    Attributes:
        averaged: the parameters whose gradients are averaged.

    Raises:
        UsageError: as for `averaged_parameters`.
    """

    def __init__(self, module: nn.Module, exclude: Sequence[str], own_group: Sequence[str]) -> None:
        self._module = module
        self._excluded = excluded_names(module, exclude)
        self.averaged = averaged_parameters(module, self._excluded, own_group)
        frozen = {
            each: name
            for name, each in module.named_parameters()
            if name not in self._excluded and not each.requires_grad and each.numel()
        }
        # A module may replace a parameter or buffer by another tensor, so their owners are kept.
        self._frozen = [
            (part._parameters, own_name, frozen[each])
            for part in module.modules()
            for own_name, each in part._parameters.items()
            if each in frozen
        ]
        self._buffer_owners = [
            (part._buffers, name)
            for prefix, part in module.named_modules()
            for name in part._buffers
            if (f"{prefix}.{name}" if prefix else name) not in self._excluded
        ]

    def check_parameters(self) -> None:
        """Make sure that the module has not got other parameters in place of all that are averaged.

        Raises:
            UsageError: it has.
        """
        present = {id(each) for each in self._module.parameters()}
        if any(id(each.parameter) in present for each in self.averaged):
            return
        raise UsageError(
            f"the module's parameters, such as '{self.averaged[0].name}', have been replaced by others since it was"
            " wrapped, whose gradients are not averaged",
            hint="load_state_dict(assign=True) and the like do so: change the module first, and wrap it then",
        )

    def check_frozen(self) -> None:
        """Make sure that no parameter is to be trained which was frozen when the module was wrapped, or in its place.

        Raises:
            UsageError: one is.
        """
        thawed = [
            name
            for owner, own_name, name in self._frozen
            if (each := owner.get(own_name)) is not None and each.requires_grad
        ]
        if not thawed:
            return
        raise UsageError(
            "parameters that were frozen when the module was wrapped require gradients now, which are not averaged:"
            f" {name_parameters(dict.fromkeys(thawed))}",
            hint="wrap the module while they require gradients, with find_unused_parameters=True, and freeze them"
            " afterwards; or exclude them, to train them on each rank by itself",
        )

    def compare(self, ranks: Communicator) -> None:
        """Make sure that all ranks have the same parameters and buffers; a collective call.

        Raises:
            RankDisagreement: they do not, on every rank.
        """
        compare_modules(ranks, describe(self._module, self._excluded))

    def take(self, ranks: Communicator, root: int, *, buffers: bool) -> None:
        """Take over a rank's parameters, and its buffers where they are to be equal; a collective call."""
        values = [each for name, each in self._module.named_parameters() if name not in self._excluded]
        broadcast_tensors(ranks, values, root)
        if buffers:
            self.broadcast_buffers(ranks, root)

    def broadcast_buffers(self, ranks: Communicator, root: int) -> None:
        """Take over a rank's buffers; a collective call."""
        buffers = [owner[name] for owner, name in self._buffer_owners]
        broadcast_tensors(ranks, [each for each in buffers if each is not None], root)
