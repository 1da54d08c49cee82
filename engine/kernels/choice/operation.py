"""An operation, and the ways to compute it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

Key = tuple[Hashable, ...]


@dataclass(frozen=True)
class Candidate:
    """One way to compute an operation.

    Attributes:
        name: what tables and records call it.
        serves: whether it can compute this call.
        run: computes it.
        rounds_more: whether it rounds more than the others by its nature, so that it has to be asked for.
    """

    name: str
    serves: Callable[[Any], bool]
    run: Callable[[Any], Any]
    rounds_more: bool = False


class Operation:
    """Something that several candidates compute, alike to rounding.

    A call of it is a named tuple of its arguments.

    Args:
        name: what tables and records call it.
        candidates: the ways; their names differ.
        rule: the name of the candidate that a call takes where nothing was measured. It can compute the call.
        key: all of a call that the candidates' times and `serves` depend on.
        labels: what records call each part of the key; empty for what speaks for itself.
        accumulates: calls have a tensor `total` and a number `beta`, and running them sets total to
            beta total + result instead of returning the result.
        miscomputed: whether a call whose operands have 16 bits would be computed wrong, so that they are widened.
    """

    def __init__(
        self,
        name: str,
        candidates: Sequence[Candidate],
        rule: Callable[[Any], str],
        key: Callable[[Any], Key],
        labels: Sequence[str],
        *,
        accumulates: bool = False,
        miscomputed: Callable[[Any], bool] = lambda call: False,
    ) -> None:
        self.name = name
        self.candidates = {candidate.name: candidate for candidate in candidates}
        self.key, self.accumulates, self.miscomputed = key, accumulates, miscomputed
        self._rule, self._labels = rule, labels

    def by_rule(self, call: Any) -> Candidate:
        """Return the candidate that the rule takes."""
        return self.candidates[self._rule(call)]

    def serving(self, call: Any) -> list[Candidate]:
        """Return the candidates that can compute the call, that of the rule first."""
        first = self.by_rule(call)
        return [first, *(each for each in self.candidates.values() if each is not first and each.serves(call))]

    def may_round_more(self, call: Any) -> bool:
        """Return whether a candidate that rounds more than the others can compute the call."""
        return any(each.rounds_more and each.serves(call) for each in self.candidates.values())

    def text(self, key: Key) -> str:
        """Return what records call the operation with a key: `inner product forward: x 64x500, weight 10x500, ...`."""
        words = (f"{label} {_text(part)}".strip() for label, part in zip(self._labels, key, strict=True))
        return f"{self.name}: {', '.join(words)}"


def _text(part: Hashable) -> str:
    if isinstance(part, tuple):
        return "x".join(map(str, part)) or "scalar"
    if isinstance(part, bool):
        return "yes" if part else "no"
    return str(part).removeprefix("torch.")
