"""The way of a slice of gradients over the wire: to the host, all-reduce, mean, back.

The reducer and the calibration use this one function, so what is measured is what happens.

The sum over the ranks is divided element by element, so the bits of an element depend on its summands alone
and not on what it was merged with. On two ranks a sum has one order, so there every plan gives the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy

from mgcaffe.comm.buffers import host_view, is_on_device
from mgcaffe.comm.communicator import Communicator

if TYPE_CHECKING:
    import torch


class GradientPath(Protocol):
    """Replaces slices of one flat gradient buffer by their means over the ranks."""

    element_bytes: int

    def mark(self) -> Any:
        """Return a token for "all that has been computed so far"; called by the thread that computes."""

    def reduce(self, offset: int, count: int, token: Any) -> None:
        """Replace elements offset to offset + count by their mean over the ranks; called by the reducer."""

    def finish(self) -> None:
        """Make what the computing thread does next see all reduced slices."""


def make_path(communicator: Communicator, flat: torch.Tensor | numpy.ndarray) -> GradientPath:
    """Return the path for a flat buffer in the host's memory or on a GPU.

    Raises:
        CommError: the buffer isn't contiguous or has a type that MPI cannot reduce.
    """
    if is_on_device(flat):
        return DevicePath(communicator, flat)
    return HostPath(communicator, flat)


class HostPath:
    """In the host's memory: reduced in place, without a copy."""

    def __init__(self, communicator: Communicator, flat: torch.Tensor | numpy.ndarray) -> None:
        self._communicator = communicator
        self._flat = host_view(flat)
        self.element_bytes = self._flat.itemsize

    def mark(self) -> None:
        """Return None: what a thread has computed is in memory."""

    def reduce(self, offset: int, count: int, token: None = None) -> None:
        """Sum the slice over the ranks and divide it by their number."""
        part = self._flat[offset : offset + count]
        self._communicator.allreduce(part, "sum")
        numpy.divide(part, self._communicator.size, out=part)

    def finish(self) -> None:
        """Do nothing."""


class DevicePath:
    """On a GPU: staged through pinned host memory on a CUDA stream of its own, beside the backward pass.

    MPI is never given device memory: nonblocking collectives on it crash in Open MPI.
    """

    def __init__(self, communicator: Communicator, flat: Any) -> None:
        import torch

        self._cuda = torch.cuda
        self._communicator = communicator
        self._flat = flat.detach().view(-1)
        self._pinned = torch.empty(self._flat.shape, dtype=flat.dtype, pin_memory=True)
        self._host = host_view(self._pinned)
        self._stream = torch.cuda.Stream(flat.device)
        self.element_bytes = flat.element_size()

    def mark(self) -> torch.cuda.Event:
        """Return an event on the computing thread's stream."""
        return self._cuda.current_stream(self._flat.device).record_event()

    def reduce(self, offset: int, count: int, token: torch.cuda.Event) -> None:
        """Copy the slice to the host once `token` has passed, take the mean over the ranks, copy it back."""
        device, pinned = (buffer[offset : offset + count] for buffer in (self._flat, self._pinned))
        part = self._host[offset : offset + count]
        with self._cuda.stream(self._stream):
            self._stream.wait_event(token)
            pinned.copy_(device, non_blocking=True)
            self._stream.synchronize()
            self._communicator.allreduce(part, "sum")
            numpy.divide(part, self._communicator.size, out=part)
            device.copy_(pinned, non_blocking=True)
            # The group's end is when its mean is back on the device, as the measured cost counts it.
            self._stream.synchronize()

    def finish(self) -> None:
        """Let the computing thread's stream wait for the copies back."""
        self._cuda.current_stream(self._flat.device).wait_stream(self._stream)
