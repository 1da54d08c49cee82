"""Measures the candidates of each operation that it is asked to compute, and keeps the fastest."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import torch

from mgcaffe.engine.kernels.choice.choices import Measured, Records
from mgcaffe.engine.kernels.choice.operation import Candidate, Operation
from mgcaffe.engine.kernels.choice.survey import Survey

_FAR_BEHIND = 1.5
_HOPELESS = 5.0
_MARGIN = 0.03
_ROUNDS = 3, 25
_SECONDS = 0.03
_PIECE = 1 << 20
_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}
_TOLERANCE_OF_16_BITS = 3e-2

_log = logging.getLogger(__name__)


class Contest(Survey):
    """Computes as chosen, after measuring what it has not met before, or before there was a candidate or this rule.

    Every candidate that serves runs twice; only once if that takes more than 5 times as long as the rule's. One that
    disagrees with the rule's is dropped with a warning, and so is, in silence, one that takes more than 1.5 times as
    long as the best, also when it runs once more. The others run in turns, at least 3 and at most 25 times each, and
    the least time counts. The rule's candidate stays unless another is faster by more than 3 %.

    Candidates that round more than the others take part where `bound` is more than 0; one that differs from the rule's
    by more than that is dropped in silence.

    Args:
        records: what was measured before; what is measured is added.
        bound: relative to the largest value.

    Attributes:
        records: all that is known.
        measured: how many contests were held.
    """

    def __init__(self, records: Records, bound: float = 0.0) -> None:
        super().__init__(records, bound)
        self.records: Records = records
        self.measured = 0

    def meet(self, operation: Operation, text: str, call: Any) -> None:
        """Measure the candidates of a call that no record answers."""
        self.records[text] = self._measure(operation, text, call)
        self.measured += 1

    def chosen(self, operation: Operation, text: str, call: Any) -> Candidate:
        """Return the fastest candidate."""
        return operation.candidates[self.records[text].chosen]

    def _measure(self, operation: Operation, text: str, call: Any) -> Measured:
        if operation.accumulates and not call.beta:
            call.total.zero_()  # or the operating system would give it its pages in the first run of a candidate
        runs = {each.name: _Run(operation, each, call) for each in self.taking_part(operation, call)}
        rule = next(iter(runs))
        expected = runs[rule].first(apart=True)
        limit = _HOPELESS * runs[rule].seconds
        unfit: set[str] = set()
        for name, run in list(runs.items())[1:]:
            try:
                error = _distance(run.first(limit), expected)
            except RuntimeError as failure:  # PyTorch's own errors, among them a GPU's lack of memory
                unfit.add(name)
                del runs[name]
                _log.warning(
                    "autotune: %s: candidate '%s' is not used, it fails: %s (%s)", self.layer, name, failure, text
                )
                continue
            rounds_more = operation.candidates[name].rounds_more
            if not error <= (min(_tolerance(expected), self.bound) if rounds_more else _tolerance(expected)):
                unfit.add(name)
                del runs[name]
                _log.log(
                    logging.DEBUG if rounds_more else logging.WARNING,
                    "autotune: %s: candidate '%s' differs from '%s' by %.2g of the largest value, and is not used (%s)",
                    self.layer, name, rule, error, text,
                )  # fmt: skip
        del expected
        seconds = {name: run.seconds for name, run in runs.items()}
        best = min(seconds.values())
        for name, run in runs.items():
            if _FAR_BEHIND * best < seconds[name] <= limit:  # another program may have come between
                seconds[name] = min(seconds[name], run.again())
        kept = [name for name in runs if seconds[name] <= _FAR_BEHIND * best or name == rule]
        if len(kept) > 1:
            least, most = _ROUNDS
            end = time.perf_counter() + _SECONDS * len(kept)
            for number in range(most):
                if number >= least and time.perf_counter() > end:
                    break
                for name in kept[:: -1 if number % 2 else 1]:
                    seconds[name] = min(seconds[name], runs[name].again())
        fastest = min(kept, key=lambda name: seconds[name])
        is_better = seconds[fastest] < (1 - _MARGIN) * seconds[rule]
        return Measured(rule, fastest if is_better else rule, seconds, frozenset(unfit))


class _Run:
    """A candidate with a call; `seconds` is what its second run took."""

    def __init__(self, operation: Operation, candidate: Candidate, call: Any) -> None:
        self._accumulates = operation.accumulates
        self._run, self._call = candidate.run, call
        self.seconds = 0.0

    def first(self, limit: float = float("inf"), *, apart: bool = False) -> torch.Tensor:
        """Return what the candidate computes; the first run makes what libraries keep, so the second counts.

        Args:
            limit: of seconds; a first run that takes more is the only one.
            apart: a sum goes into a tensor of its own, as it does where the caller's total holds something.
        """
        if self._accumulates and (apart or self._call.beta):
            self._call = self._call._replace(total=torch.zeros_like(self._call.total), beta=0.0)
        for _ in range(2):
            began = _now(self._call)
            computed = self._run(self._call)
            self.seconds = _now(self._call) - began
            if self.seconds > limit:
                break
        result: torch.Tensor = self._call.total if self._accumulates else computed
        return result

    def again(self) -> float:
        """Run once more and return the seconds."""
        began = _now(self._call)
        self._run(self._call)
        return _now(self._call) - began


def _now(call: Any) -> float:
    """Return the clock's reading once a GPU has done what it was asked for."""
    device = call[0].device
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _distance(values: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference relative to the largest value expected; nan or inf where values are not finite."""
    if values.shape != expected.shape:
        return float("inf")
    if expected.numel() == 0:
        return 0.0
    largest = difference = 0.0
    # Piece by piece, since a weight's gradient may be the largest tensor of the net.
    for piece, other in zip(_pieces(values), _pieces(expected), strict=True):
        largest = max(largest, float(other.abs().max()))
        difference = max(difference, _or_infinite(float((piece - other).abs().max())))
    return difference / largest if largest else difference


def _pieces(values: torch.Tensor) -> Sequence[torch.Tensor]:
    return values.split(max(1, _PIECE // max(1, values[0].numel()))) if values.dim() else [values]


def _or_infinite(number: float) -> float:
    """Return the number, infinity for nan, which compares with nothing."""
    return number if number == number else float("inf")


def _tolerance(expected: torch.Tensor) -> float:
    return _TOLERANCE.get(expected.dtype, _TOLERANCE_OF_16_BITS)
