"""Makes functions of noted calls: each makes its calls, one after the other, and nothing else.

A function is compiled from a text of assignments between numbered values,

    v[7] = f1(v[4], a1, v[5], bias=a2)
    v[4] = None

in which a value is dropped after the last call that reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from mgcaffe.engine.capture.recorder import Argument, Call, Constant, Slot

Values = list[torch.Tensor | None]
"""The tensors of a pass, by their slots."""


def compile_calls(groups: Sequence[Sequence[Call]], kept: Collection[int]) -> list[Callable[[Values], None]]:
    """Return a function for each group of calls; they are to be called in this order, with one list of values.

    Args:
        groups: the calls.
        kept: the slots of the values that are not dropped.
    """
    last = {number: call for calls in groups for call in calls for number in (*call.read, *call.made)}
    return [
        _Text(calls, lambda number, call: last[number] is call and number not in kept).function() for calls in groups
    ]


class _Text:
    """The text of one function.

    Args:
        calls: what it calls.
        is_last: whether nothing reads a slot after a call.
    """

    def __init__(self, calls: Sequence[Call], is_last: Callable[[int, Call], bool]) -> None:
        self._names: dict[str, Any] = {}
        self._lines = ["def replay(v):"]
        for call in calls:
            self._lines.append(f"    {self._assigned(call)}{self._call(call)}")
            if dead := sorted({number for number in (*call.read, *call.made) if is_last(number, call)}):
                self._lines.append(f"    {' = '.join(f'v[{number}]' for number in dead)} = None")

    def function(self) -> Callable[[Values], None]:
        """Return the function."""
        text = "\n".join([*self._lines, "    return"])
        exec(compile(text, "<captured calls>", "exec"), self._names)
        function: Callable[[Values], None] = self._names["replay"]
        return function

    def _call(self, call: Call) -> str:
        arguments = [self._argument(each) for each in call.arguments]
        arguments += [f"{name}={self._argument(each)}" for name, each in call.keywords.items()]
        return f"{self._name('f', call.function)}({', '.join(arguments)})"

    def _assigned(self, call: Call) -> str:
        if call.result is None:
            return ""
        if isinstance(call.result, int):
            return f"v[{call.result}] = "
        return "".join("_, " if number is None else f"v[{number}], " for number in call.result) + "= "

    def _argument(self, argument: Argument) -> str:
        if isinstance(argument, Slot):
            return f"v[{argument.number}]"
        if isinstance(argument, Constant):
            return self._name("a", argument.value)
        parts = "".join(f"{self._argument(each)}, " for each in argument)
        return f"[{parts}]" if isinstance(argument, list) else f"({parts})"

    def _name(self, letter: str, value: Any) -> str:
        name = f"{letter}{len(self._names)}"
        self._names[name] = value
        return name
