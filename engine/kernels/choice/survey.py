"""Finds out which operations a net asks for that no record answers, so that they can be measured elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from mgcaffe.engine.kernels.choice.choices import Choices, Measured
from mgcaffe.engine.kernels.choice.operation import Candidate, Operation


class Layout(NamedTuple):
    """All of a tensor on a CPU but its values."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype

    def filled(self, seed: int) -> torch.Tensor:
        """Return such a tensor with random numbers, the same every time."""
        last = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        values = torch.randn(last + 1 if 0 not in self.shape else 0, generator=torch.Generator().manual_seed(seed))
        return values.to(self.dtype).as_strided(self.shape, self.strides)


class Asked(NamedTuple):
    """A call that is to be measured.

    Attributes:
        layer: what messages call the layer that it is of.
        operation: the operation's name.
        call: the named tuple, with a `Layout` for each tensor.
    """

    layer: str
    operation: str
    call: Any

    def filled(self) -> Any:
        """Return the call with tensors of random numbers."""
        fields = self.call._asdict().items()
        filled = {name: value.filled(seed) for seed, (name, value) in enumerate(fields) if isinstance(value, Layout)}
        return self.call._replace(**filled)


class Survey(Choices):
    """Computes by the rules, and notes what is asked for.

    Args:
        records: what was measured before.
        bound: of candidates that round more than the others, relative to the largest value.

    Attributes:
        layer: what messages call the layer that is running, set by the caller.
        met: the texts of what was asked for since the caller last cleared it, in order.
        open: by text, what was not measured before, or before there was a candidate or this rule; a `Contest`, which
            measures it at once, has none.
    """

    measures = True

    def __init__(self, records: Mapping[str, Measured], bound: float = 0.0) -> None:
        self.records, self.bound = records, bound
        self.layer = ""
        self.met: list[str] = []
        self.open: dict[str, Asked] = {}

    def run(self, operation: Operation, call: Any) -> Any:
        """Compute the operation, and note it."""
        text = self.text(operation, operation.key(call), call)
        if text not in self.met:
            self.met.append(text)
        if text not in self.open and not self.is_known(operation, text, call):
            self.meet(operation, text, call)
        return self.chosen(operation, text, call).run(call)

    def meet(self, operation: Operation, text: str, call: Any) -> None:
        """Note a call that no record answers."""
        tensors = {name: value for name, value in call._asdict().items() if isinstance(value, torch.Tensor)}
        layouts = {name: Layout(tuple(x.shape), x.stride(), x.dtype) for name, x in tensors.items()}
        self.open[text] = Asked(self.layer, operation.name, call._replace(**layouts))

    def chosen(self, operation: Operation, text: str, call: Any) -> Candidate:
        """Return what computes the call now."""
        return operation.by_rule(call)

    def is_known(self, operation: Operation, text: str, call: Any) -> bool:
        """Return whether a record was made with the rule and the candidates of today."""
        known = self.records.get(text)
        if known is None or known.rule != operation.by_rule(call).name:
            return False
        names = {each.name for each in self.taking_part(operation, call)}
        return known.chosen in names and names <= known.seconds.keys() | known.unfit

    def taking_part(self, operation: Operation, call: Any) -> list[Candidate]:
        """Return the candidates that are to be measured, the rule's first."""
        return [each for each in operation.serving(call) if self.bound or not each.rounds_more]
