"""Streams of a device that does nothing before somebody waits for it: what waits for too little shows.

A stream runs its kernels in order, as late as it may: when an event behind them is waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


class LateStream:
    """Stands for `torch.cuda.Stream`."""

    def __init__(self, device: Any = None) -> None:
        self._kernels: list[Callable[[], None]] = []
        self.done = 0

    def launch(self, kernel: Callable[[], None]) -> None:
        """Enqueue something."""
        self._kernels.append(kernel)

    def run(self, count: int) -> None:
        """Run the first `count` kernels, as far as they have not run."""
        while self.done < count:
            kernel, self.done = self._kernels[self.done], self.done + 1
            kernel()

    def record_event(self) -> LateEvent:
        """Return an event behind what was launched."""
        event = LateEvent()
        event.record(self)
        return event

    def wait_event(self, event: LateEvent) -> None:
        """Let what is launched from here on wait for the event."""
        self.launch(event.synchronize)

    def wait_stream(self, stream: LateStream) -> None:
        """Let what is launched from here on wait for all that was launched on another stream."""
        self.wait_event(stream.record_event())

    def is_busy(self) -> bool:
        """Return whether something that was launched has not run."""
        return self.done < len(self._kernels)

    def synchronize(self) -> None:
        """Run all that was launched."""
        self.run(len(self._kernels))


class LateEvent:
    """Stands for `torch.cuda.Event`."""

    def __init__(self, enable_timing: bool = False, blocking: bool = False) -> None:
        self._stream, self._count, self._at = LateStream(), 0, 0.0

    def record(self, stream: LateStream | None = None) -> None:
        """Take the stream's present end; without one, the time alone."""
        self._at = time.perf_counter()
        if stream is not None:
            self._stream, self._count = stream, len(stream._kernels)

    def synchronize(self) -> None:
        """Run what the stream has launched before the event."""
        self._stream.run(self._count)

    def elapsed_time(self, end: LateEvent) -> float:
        """Return the ms from here to another event's record."""
        return 1e3 * (end._at - self._at)
