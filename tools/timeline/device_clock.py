"""Points in time of a computation, which on a GPU are reached later than the program passes them."""

from __future__ import annotations

import time
from typing import Any

import torch


class DeviceClock:
    """Marks points in time, on the GPU where the net runs on one, which need not be the thread's current GPU.

    Args:
        device: where the computation runs.

    Attributes:
        on_gpu: whether that is a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.on_gpu = device.type == "cuda"
        self._zero_s = 0.0
        self._zero: Any = None

    def start(self) -> None:
        """Relate the GPU's clock to the computer's."""
        if self.on_gpu:
            self._zero = self.mark()
            self.synchronize()
            self._zero_s = time.perf_counter()

    def mark(self) -> Any:
        """Return a mark of this point in time."""
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def synchronize(self) -> None:
        """Return once a GPU has reached all marks."""
        if self.on_gpu:
            torch.cuda.synchronize(self._device)

    def seconds(self, mark: Any) -> float:
        """Return a mark's time in seconds of `time.perf_counter`; on a GPU, one that has been reached."""
        if not self.on_gpu:
            return float(mark)
        return self._zero_s + float(self._zero.elapsed_time(mark)) / 1e3
