"""Who decides which candidate computes: the rules, a record of what was measured, or a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from mgcaffe.engine.kernels.choice.operation import Candidate, Key, Operation
from mgcaffe.engine.kernels.precision import needs_float32


@dataclass(frozen=True)
class Measured:
    """What was found out about one operation with arguments of one kind.

    Attributes:
        rule: the candidate that the rule takes.
        chosen: the one to take.
        seconds: by candidate, how long it takes; those that were dropped early have what the faster one of
            two runs took, or the only one.
        unfit: the candidates that failed, or disagreed with the rule's.
    """

    rule: str
    chosen: str
    seconds: Mapping[str, float]
    unfit: frozenset[str] = frozenset()

    @property
    def saved_s(self) -> float:
        """How many seconds less than the rule's candidate the chosen one takes."""
        return self.seconds[self.rule] - self.seconds[self.chosen]


Records = dict[str, Measured]
"""What was measured, by `Choices.text`."""


class Choices:
    """Takes what the rules say: the choice depends on shapes, types, formats and the class of processor alone.

    Attributes:
        bound: by how much of the largest value a candidate that rounds more than the others may differ from the
            rule's; with 0 there are none. What was measured under one bound does not count under another.
        measures: every operation has to be run by itself, since it is measured.
    """

    bound = 0.0
    measures = False

    def candidate(self, operation: Operation, call: Any) -> Candidate:
        """Return the candidate that computes the operation."""
        return operation.by_rule(call)

    def run(self, operation: Operation, call: Any) -> Any:
        """Compute the operation."""
        return self.candidate(operation, call).run(call)

    def text(self, operation: Operation, key: Key, call: Any) -> str:
        """Return what records call the operation with this call, whose key it is."""
        bounded = self.bound and operation.may_round_more(call)
        return operation.text(key) + (f", rounding within {self.bound:g}" if bounded else "")


RULES = Choices()


def compute(choices: Choices, operation: Operation, call: Any) -> Any:
    """Compute an operation that gives a new tensor, in the type of the call's first one.

    Operands of 16 bits that the processor has no fast instructions for, or whose result would be wrong, are widened to
    float32; the result is rounded.
    """
    if needs_float32(call[0]) or operation.miscomputed(call):
        return choices.run(operation, _in_float32(call)).to(call[0].dtype)
    return choices.run(operation, call)


def add_rounded(choices: Choices, operation: Operation, call: Any, dtype: torch.dtype) -> None:
    """Compute an operation that accumulates, its result in `dtype`, and add that to a total of any type.

    A total of this type is accumulated into in place, unless operands are widened, as `compute` says.
    """
    is_wrong = operation.miscomputed(call)
    if call.total.dtype == dtype and not is_wrong:
        choices.run(operation, call)
        return
    rounded = call._replace(total=torch.empty_like(call.total, dtype=dtype), beta=0.0)
    if needs_float32(rounded.total) or is_wrong:
        rounded = _in_float32(rounded)
    choices.run(operation, rounded)
    result = rounded.total.to(dtype)
    if call.beta:
        call.total.add_(result)
    else:
        call.total.copy_(result)


def _in_float32(call: Any) -> Any:
    """Return a call with all of its tensors in float32, as `compute` says."""
    return call._replace(
        **{name: value.float() for name, value in call._asdict().items() if isinstance(value, torch.Tensor)}
    )


class Recorded(Choices):
    """Takes what was measured, and what the rules say where nothing was.

    Args:
        records: what was measured. A candidate that this PyTorch lacks is passed over.
        bound: the one that it was measured under.
    """

    def __init__(self, records: Mapping[str, Measured], bound: float = 0.0) -> None:
        self.records, self.bound = records, bound
        self._known: dict[tuple[Operation, Key], Candidate | None] = {}

    def candidate(self, operation: Operation, call: Any) -> Candidate:
        """Return what was measured to be the fastest, or the rule's."""
        key = (operation, operation.key(call))
        try:
            candidate = self._known[key]
        except KeyError:
            candidate = self._known[key] = self._find(operation, key[1], call)
        return operation.by_rule(call) if candidate is None else candidate

    def _find(self, operation: Operation, key: Key, call: Any) -> Candidate | None:
        measured = self.records.get(self.text(operation, key, call))
        candidate = operation.candidates.get(measured.chosen) if measured is not None else None
        if candidate is None or (candidate.rounds_more and not self.bound) or not candidate.serves(call):
            return None
        return candidate


class Forced(Choices):
    """Takes the candidate of one name wherever it serves, for tests; else what the rules say.

    Attributes:
        used: the operations that it was taken for.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.used: set[str] = set()

    def candidate(self, operation: Operation, call: Any) -> Candidate:
        """Return the candidate of that name, or the rule's."""
        candidate = operation.candidates.get(self.name)
        if candidate is None or not candidate.serves(call):
            return operation.by_rule(call)
        self.used.add(operation.name)
        return candidate
