"""Takes the times of one iteration of the computing thread (`comm.timings.IterationTimes`)."""

from __future__ import annotations

import time

from mgcaffe.comm.timings import IterationTimes


class IterationClock:
    """Starts when it is made.

    Args:
        before: seconds that count as well, for what was waited for since the iteration before.

    Attributes:
        first_forward, forward, update: as those of `IterationTimes`, in seconds; whoever sees them happen sets them.
        data_wait: seconds waited for data, which are left out of all others.
    """

    def __init__(self, before: float = 0.0) -> None:
        self._before = before
        self._began = time.perf_counter()
        self._needed: dict[int, float] = {}
        self.first_forward = 0.0
        self.forward = 0.0
        self.update = 0.0
        self.data_wait = 0.0

    def now(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began

    def needs(self, segment: int) -> None:
        """A layer is about to read the parameters of a segment of the arena."""
        self._needed.setdefault(segment, self.now())

    def times(self, segments: int) -> IterationTimes:
        """What was taken, up to now; what nothing has read counts as needed at the end of the forward pass."""
        ends = [self._needed.get(segment, self.first_forward) for segment in range(segments)]
        first, forward, *needed = (max(0.0, end - self.data_wait) for end in (self.first_forward, self.forward, *ends))
        return IterationTimes(self._before + self.now() - self.data_wait, needed, first, forward, self.update)
