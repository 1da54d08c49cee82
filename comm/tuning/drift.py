"""Notices that communication is waited for longer than it was: the network or the batch is another one now.

A plan rests on what was measured once. The waiting of the last iterations, the slowest rank's, is compared with
what was expected; where it lies clearly above in two windows in a row, one plans again. Each time the windows
become longer, and after a few times one leaves it: planning itself costs iterations.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

WINDOW = 50
MOST_TIMES = 3
_CLEARLY = 1.25
_PART_OF_BACKWARD = 0.05
_IN_A_ROW = 2


class Drift(NamedTuple):
    """The seconds that are waited for communication, and those that were expected."""

    exposed: float
    expected: float


class DriftWatch:
    """Watches one run; every rank has its own and all do the same.

    Args:
        window: iterations in the first windows.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._expected: float | None = None
        self._tolerance = 0.0
        self._exposed: list[float] = []
        self._in_a_row = 0
        self._times = 0

    def expect(self, exposed: float | None, backward: float, uncertainty: float = 0.0) -> None:
        """Begin to watch a plan.

        Args:
            exposed: the seconds that the computing thread waits for communication; None: as in the first window.
            backward: the seconds of the backward pass, which a difference is held against.
            uncertainty: the seconds by which `exposed`, which few iterations may have told, may be off.
        """
        self._expected = exposed
        self._tolerance = _PART_OF_BACKWARD * backward + uncertainty
        self._exposed = []
        self._in_a_row = 0

    def add(self, exposed: float) -> bool:
        """Note an iteration; return whether the ranks have to agree on the window now (`judge`)."""
        if self._times >= MOST_TIMES:
            return False
        self._exposed.append(exposed)
        return len(self._exposed) >= self._window

    @property
    def window(self) -> Sequence[float]:
        """What was noted in the window that has ended, on this rank."""
        return self._exposed

    def judge(self, exposed: Sequence[float]) -> Drift | None:
        """Take each iteration's longest waiting of all ranks, as trials do; tell where it is time to plan again."""
        self._exposed = []
        median = statistics.median(exposed)
        if self._expected is None:
            self._expected = median
            return None
        if median <= _CLEARLY * self._expected + self._tolerance:
            self._in_a_row = 0
            return None
        self._in_a_row += 1
        if self._in_a_row < _IN_A_ROW:
            return None
        self._times += 1
        self._window *= 2
        return Drift(median, self._expected)
