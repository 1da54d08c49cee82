"""Notice that communication is waited for longer than it was when the plan was chosen: network or batch have changed.

A plan rests on what was measured once. The waiting in the last iterations, on the slowest rank, is compared with
what was expected; where it lies clearly above that in two windows in a row, a new search is due. Each time the windows
become longer, and after a few searches there are no more: searching itself costs iterations.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.tuning.calibration import agree_times
from mgcaffe.comm.tuning.profiler import MeasuredIteration

WINDOW = 50
"""Iterations in the first windows."""
MAX_SEARCHES = 3
"""How often drift starts a new search, at most."""
EXCESS_RATIO = 1.25
"""The ratio of the waiting to what was expected beyond which it may be drift."""
TOLERATED_BACKWARD_SHARE = 0.05
"""The share of the backward pass by which the waiting may exceed that ratio."""
WINDOWS_IN_A_ROW = 2
"""How many windows in a row have to exceed both."""


class Drift(NamedTuple):
    """The seconds that are waited for communication, and those that were expected."""

    exposed: float
    expected: float


class DriftWatch:
    """Watch the waiting of one run; every rank has its own watch, and all come to the same conclusion.

    Args:
        window: iterations in the first windows.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window_length = window
        self._expected: float | None = None
        self._tolerance = 0.0
        self._exposed: list[float] = []
        self._excesses_in_a_row = 0
        self._searches = 0

    def expect(self, exposed: float | None, backward: float, uncertainty: float = 0.0) -> None:
        """Begin to watch a plan.

        Args:
            exposed: the seconds that the computing thread waits for communication; None: as in the first window.
            backward: the seconds of the backward pass, of which a share is tolerated.
            uncertainty: the seconds by which `exposed` may be off, since it rests on few iterations.
        """
        self._expected = exposed
        self._tolerance = TOLERATED_BACKWARD_SHARE * backward + uncertainty
        self._exposed = []
        self._excesses_in_a_row = 0

    def add(self, exposed: float) -> bool:
        """Record an iteration's waiting in seconds; return whether the ranks have to agree on the window (`judge`)."""
        if self._searches >= MAX_SEARCHES:
            return False
        self._exposed.append(exposed)
        return len(self._exposed) >= self._window_length

    @property
    def window(self) -> Sequence[float]:
        """What was recorded in the window that has ended, on this rank."""
        return self._exposed

    def judge(self, exposed: Sequence[float]) -> Drift | None:
        """Take each iteration's longest waiting of all ranks, as trials do; return the drift if a search is due."""
        self._exposed = []
        median = statistics.median(exposed)
        if self._expected is None:
            self._expected = median
            return None
        if median <= EXCESS_RATIO * self._expected + self._tolerance:
            self._excesses_in_a_row = 0
            return None
        self._excesses_in_a_row += 1
        if self._excesses_in_a_row < WINDOWS_IN_A_ROW:
            return None
        self._searches += 1
        self._window_length *= 2
        return Drift(median, self._expected)


class Settled:
    """The last phase: a plan was chosen, and the waiting for communication is watched.

    Args:
        communicator: the ranks, which agree on each window.
        watch: of the run, with the expectations of this plan; None: nothing is watched.
    """

    def __init__(self, communicator: Communicator, watch: DriftWatch | None) -> None:
        self._communicator = communicator
        self._watch = watch

    def record(self, iteration: MeasuredIteration) -> Drift | None:
        """Record an iteration; return the drift if a new search is due; collective at the end of each window."""
        if self._watch is None or not self._watch.add(iteration.report.exposed_s):
            return None
        return self._watch.judge(agree_times(self._communicator, self._watch.window))
