"""Finds the inputs of a module that it reads as rows of tables, so that their examples have to be whole numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_LOOK_UPS = (torch.nn.functional.embedding, torch.nn.functional.embedding_bag)


def find_rows(module: Any, in_order: Sequence[torch.Tensor], by_name: Mapping[str, torch.Tensor]) -> set[int]:
    """Run a module once, and return which inputs it looks rows of tables up by, or where bags of these begin.

    Args:
        module: an nn.Module, in evaluation mode.
        in_order: examples of its inputs, of floating-point numbers.
        by_name: further ones, by name.

    Returns:
        Their identities. A view of an input counts as that input; where the module fails, those found until then.
    """
    look_ups = _LookUps([*in_order, *by_name.values()])
    with torch.no_grad(), look_ups, contextlib.suppress(Exception):
        module(*in_order, **by_name)
    return look_ups.found


class _LookUps(TorchFunctionMode):
    """Hands whole numbers to look-ups in place of the inputs, and notes which these are.

    Attributes:
        found: the identities of these inputs.
    """

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._inputs = {each.untyped_storage().data_ptr(): id(each) for each in inputs}
        self.found: set[int] = set()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _LOOK_UPS:
            args = [self._whole(each) for each in args]
            kwargs = {name: self._whole(each) for name, each in kwargs.items()}
        return func(*args, **kwargs)

    def _whole(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.untyped_storage().data_ptr() not in self._inputs:
            return value
        self.found.add(self._inputs[value.untyped_storage().data_ptr()])
        return value.long()
