"""Finds the inputs of a module that it reads as rows of tables, so that their examples have to be whole numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

# By the function, the arguments that are whole numbers: their places and names.
_LOOK_UPS = {
    torch.nn.functional.embedding: {0: "input"},
    torch.nn.functional.embedding_bag: {0: "input", 2: "offsets"},
}
# These put values of tensors into a new one.
_COPYING = (
    torch.cat,
    torch.concat,
    torch.stack,
    torch.hstack,
    torch.vstack,
    torch.clone,
    torch.Tensor.clone,
    torch.Tensor.contiguous,
    torch.Tensor.repeat,
    torch.Tensor.tile,
    torch.tile,
    torch.Tensor.reshape,
    torch.Tensor.flatten,
    torch.flatten,
    torch.reshape,
)


def find_rows(module: Any, in_order: Sequence[torch.Tensor], by_name: Mapping[str, torch.Tensor]) -> set[int]:
    """Run a module once, and return which inputs it looks rows of tables up by, or bags of these begin at.

    Args:
        module: an nn.Module, in evaluation mode.
        in_order: examples of its inputs, of floating-point numbers.
        by_name: further ones, by name.

    Returns:
        Their identities. Parts and copies of an input count as that input; where the module fails, those found until
        then.
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
        self._origins = {_memory(each): {id(each)} for each in inputs}
        self._copies: list[torch.Tensor] = []  # or others would be made in their memory
        self.found: set[int] = set()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        numbers = _LOOK_UPS.get(func)
        if numbers is not None:
            args = [self._whole(each) if place in numbers else each for place, each in enumerate(args)]
            kwargs = {name: self._whole(each) if name in numbers.values() else each for name, each in kwargs.items()}
        result = func(*args, **kwargs)
        if func in _COPYING:
            self._follow(result, args[0] if args else next(iter(kwargs.values())))
        return result

    def _whole(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or _memory(value) not in self._origins:
            return value
        self.found |= self._origins[_memory(value)]
        return value.long()

    def _follow(self, copy: torch.Tensor, given: Any) -> None:
        """Let a copy count as the inputs that it was made of, where it was made of inputs alone."""
        parts = list(given) if isinstance(given, (list, tuple)) else [given]
        if _memory(copy) not in self._origins and all(_memory(each) in self._origins for each in parts):
            self._copies.append(copy)
            self._origins[_memory(copy)] = set().union(*(self._origins[_memory(each)] for each in parts))


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
