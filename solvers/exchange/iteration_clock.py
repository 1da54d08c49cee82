"""Measures one iteration of the computing thread (`comm/planning/timings.py`: IterationTimes)."""

from __future__ import annotations

import time
from collections.abc import Callable

from mgcaffe.comm.planning.timings import IterationTimes


class IterationClock:
    """Starts when it is made, and stands still while data is waited for.

    Args:
        data_wait: gives the seconds waited for data so far.
        before: seconds that count as well, for what was waited for since the iteration before.

    Attributes:
        first_forward, forward, update, agreement: as those of `IterationTimes`, in seconds; set by the
            trainer.
    """

    def __init__(self, data_wait: Callable[[], float] = float, before: float = 0.0) -> None:
        self._data_wait = data_wait
        self._before = before
        self._began = time.perf_counter() - data_wait()
        self._needed: dict[int, float] = {}
        self.first_forward = 0.0
        self.forward = 0.0
        self.update = 0.0
        self.agreement = 0.0

    def now(self) -> float:
        """Return the seconds since the start."""
        return time.perf_counter() - self._data_wait() - self._began

    def needs(self, segment: int) -> None:
        """Record that a layer is about to read the parameters of a segment of the arena."""
        self._needed.setdefault(segment, self.now())

    def times(self, segments: int) -> IterationTimes:
        """Return the times up to now; what nothing has read counts as needed at the end of the forward pass."""
        needed = [self._needed.get(segment, self.first_forward) for segment in range(segments)]
        return IterationTimes(
            total=self._before + self.now(),
            until_backward=self._before + self.forward,
            needed=needed,
            first_forward=self.first_forward,
            forward=self.forward,
            update=self.update,
            agreement=self.agreement,
        )
