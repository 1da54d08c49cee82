"""Notes down the calls of tensor functions that a piece of code makes, so that they can be made without it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from mgcaffe.engine.one_call import is_one_call

_LOOKS = {
    torch.Tensor.dim,
    torch.Tensor.stride,
    torch.Tensor.size,
    torch.Tensor.numel,
    torch.Tensor.element_size,
    torch.Tensor.is_contiguous,
    torch.Tensor.is_floating_point,
    torch.Tensor.data_ptr,
    torch.Tensor.untyped_storage,
    torch.Tensor.__len__,
}
"""What tells of a tensor's form, and where it lies, but nothing of its values."""

_MAY_GIVE_ITSELF = {torch.Tensor.to, torch.Tensor.contiguous, torch.Tensor.float}
"""What returns the tensor itself where nothing is to be done."""


class Slot(NamedTuple):
    """A tensor that is another one in each pass, by its number."""

    number: int


@dataclass(frozen=True, eq=False)
class Constant:
    """An argument that is the same in each pass: a number, a shape, or a tensor that stays, such as a parameter's."""

    value: Any

    def __eq__(self, other: object) -> bool:
        """Compare tensors by identity, all else by value and type."""
        if not isinstance(other, Constant):
            return NotImplemented
        mine, others = self.value, other.value
        if isinstance(mine, torch.Tensor) or isinstance(others, torch.Tensor):
            return mine is others
        return type(mine) is type(others) and bool(mine == others)


Argument = Slot | Constant | list[Any] | tuple[Any, ...]
"""One argument; a list or tuple with tensors inside is one of arguments."""


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        function: what is called.
        arguments, keywords: with what.
        result: the slot of what it gives, a list of them (None for what is no new tensor) if it gives several, or None
            if it gives nothing new, as functions that work in place.
    """

    function: Callable[..., Any]
    arguments: Sequence[Argument]
    keywords: Mapping[str, Argument]
    result: int | list[int | None] | None

    @property
    def read(self) -> list[int]:
        """The slots of its arguments."""
        return [number for each in (*self.arguments, *self.keywords.values()) for number in _slots(each)]

    @property
    def made(self) -> list[int]:
        """The slots of what it gives."""
        if isinstance(self.result, list):
            return [number for number in self.result if number is not None]
        return [] if self.result is None else [self.result]


def _slots(argument: Argument) -> list[int]:
    if isinstance(argument, Slot):
        return [argument.number]
    return [] if isinstance(argument, Constant) else [number for each in argument for number in _slots(each)]


@dataclass
class _Known:
    """Which tensors have slots, and which are constants, by their ids."""

    slots: dict[int, int] = field(default_factory=dict)
    watched: dict[int, weakref.ref[torch.Tensor]] = field(default_factory=dict)
    constants: dict[int, torch.Tensor] = field(default_factory=dict)

    def add(self, tensor: torch.Tensor, slot: int) -> None:
        key = id(tensor)
        self.slots[key] = slot
        # Another tensor may get the id of one that is gone.
        self.watched[key] = weakref.ref(tensor, lambda _: self.slots.pop(key, None))

    def __contains__(self, value: Any) -> bool:
        return id(value) in self.slots or id(value) in self.constants


class Recorder(TorchFunctionMode):
    """Notes down calls, as often as `noting` is entered.

    Tensors are not kept alive by it, but for those that are neither given to `slot_for` nor made by a noted call.

    Attributes:
        count: how many slots there are.
        why_not: why the code cannot be replayed; empty: nothing speaks against it. That is so where values are read by
            Python, or random numbers drawn from a generator that is an argument.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.why_not = ""
        self._calls: list[Call] = []
        self._known = _Known()

    @contextmanager
    def noting(self, groups: list[list[Call]]) -> Iterator[None]:
        """Note down the calls inside as one more group."""
        self._calls = []
        groups.append(self._calls)
        with self:
            yield

    def slot_for(self, tensor: torch.Tensor) -> int:
        """Return the slot of a tensor; one that has none gets one, since it is another tensor in each pass."""
        if id(tensor) not in self._known.slots:
            self._known.add(tensor, self.count)
            self.count += 1
        return self._known.slots[id(tensor)]

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Make the call and note it down."""
        kwargs = kwargs or {}
        if func in _LOOKS:
            return func(*args, **kwargs)
        arguments = [self._argument(each) for each in args]
        keywords = {name: self._argument(each) for name, each in kwargs.items()}
        result = func(*args, **kwargs)
        if func in _MAY_GIVE_ITSELF and result is args[0]:
            return result
        made: int | list[int | None] | None
        if isinstance(result, torch.Tensor):
            made = self._new(result)
        elif isinstance(result, (tuple, list)) and any(isinstance(each, torch.Tensor) for each in result):
            made = [self._new(each) if isinstance(each, torch.Tensor) else None for each in result]
        elif getattr(func, "__name__", "") == "__get__":
            return result  # an attribute, such as the shape
        else:
            if func is not torch.Tensor.__setitem__ and not is_one_call(func):
                self.why_not = self.why_not or f"Python reads what {getattr(func, '__name__', func)} gives"
            made = None
        self._calls.append(Call(func, arguments, keywords, made))
        return result

    def _argument(self, value: Any) -> Argument:
        if isinstance(value, torch.Generator):
            self.why_not = self.why_not or "random numbers are drawn"
        if isinstance(value, torch.Tensor):
            number = self._known.slots.get(id(value))
            if number is not None:
                return Slot(number)
            self._known.constants[id(value)] = value
        elif isinstance(value, (list, tuple)) and any(isinstance(each, torch.Tensor) for each in value):
            parts = [self._argument(each) for each in value]
            return parts if isinstance(value, list) else tuple(parts)
        return Constant(value)

    def _new(self, tensor: torch.Tensor) -> int | None:
        """Return the slot of a tensor that a call made; None if it was there before."""
        return None if tensor in self._known else self.slot_for(tensor)
