"""Times the steps of a computation without synchronizing it, also on a GPU, which runs asynchronously."""

from __future__ import annotations

import time
from typing import Any

import torch


class Stopwatch:
    """Laps between moments of a computation; on a GPU between the events that it reaches.

    Args:
        device: where the computation runs.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_gpu = device.type == "cuda"
        self._marks: list[Any] = []

    def start(self) -> None:
        """Discard the laps and start the first one."""
        self._marks = []
        self.lap()

    def lap(self) -> None:
        """End a lap."""
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))  # which need not be the thread's current GPU
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def laps(self) -> list[float]:
        """Return the laps in seconds."""
        pairs = zip(self._marks, self._marks[1:], strict=False)
        if not self._on_gpu:
            return [end - start for start, end in pairs]
        torch.cuda.synchronize(self._device)
        return [start.elapsed_time(end) / 1000 for start, end in pairs]
