"""Replaces a slice of gradients by its mean: copy to the host, sum over the ranks (`sums/make.py`), divide, copy back.

Over NCCL nothing is copied (`nccl_path.py`).

The reducer and the calibration use this one function, so what is measured is what happens.

The sum over the ranks is divided element by element, so the bits of an element depend on its summands alone
and not on what it was merged with. On two ranks a sum has one order, so there every plan gives the same bits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy

from mgcaffe.comm.exchange.nccl_path import NcclPath, open_nccl
from mgcaffe.comm.exchange.sums.base import PlainSum, Started, Sum
from mgcaffe.comm.transport.buffers import host_view, is_on_device
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.errors import CommError

if TYPE_CHECKING:
    import torch


class GradientPath(Protocol):
    """Replaces slices of one flat gradient buffer by their means over the ranks.

    Attributes:
        element_bytes: the size of a gradient.
    """

    element_bytes: int

    def mark(self, offset: int, count: int) -> Any:
        """Record that these elements have been computed; called by the thread that computes.

        Returns a token for `reduce`.
        """

    def reduce(self, offset: int, count: int, token: Any) -> None:
        """Replace elements offset to offset + count by their mean over the ranks; called by the reducer."""

    def finish(self) -> None:
        """Make what the computing thread does next see all reduced slices."""


def make_path(
    communicator: Communicator,
    flat: torch.Tensor | numpy.ndarray,
    summing: Sum | None = None,
    transport: str = "",
    *,
    divides: bool = True,
) -> GradientPath:
    """Return the path for a flat buffer in the host's memory or on a GPU; a collective call over NCCL.

    Args:
        communicator: the ranks.
        flat: the buffer.
        summing: how slices are summed (`sums.make.make_sum`); None: by one all-reduce on the communicator.
        transport: `nccl`: on the GPU (`transports.choose_transport`); otherwise the sum says by what.
        divides: whether sums are divided; False: gradients were, before they came.

    Raises:
        CommError: the buffer isn't contiguous or has a type that ranks cannot reduce.
    """
    summing = summing if summing is not None else PlainSum(communicator)
    divisor = communicator.size if divides else 1
    if not isinstance(flat, numpy.ndarray) and is_on_device(flat):
        if transport == "nccl":
            return NcclPath(flat, open_nccl(communicator, flat.device, divisor))
        return DevicePath(divisor, flat, summing, CudaStreams(flat.device))
    return HostPath(divisor, flat, summing)


class HostPath:
    """In the host's memory: reduced in place, without a copy.

    Where sums go on by themselves (gloo) one starts as soon as its group is complete, though only so many travel
    at a time (`Waiting.at_once`): the link is not idle while the reducer's thread waits for a core, wakes up and
    divides. MPI's calls make no progress without a thread that tests them.

    Attributes:
        starts_early: whether sums go on by themselves.
    """

    def __init__(self, divisor: int, flat: torch.Tensor | numpy.ndarray, summing: Sum) -> None:
        self._divisor = divisor
        self._flat = host_view(flat)
        self._sum = summing
        self.element_bytes = self._flat.itemsize
        self._starter = summing.starter if isinstance(summing, PlainSum) else None
        self.starts_early = self._starter is not None

    def mark(self, offset: int, count: int) -> Started | None:
        """Start the sum, where it goes on by itself; what goes wrong is raised by `reduce`."""
        if self._starter is None:
            return None
        try:
            return self._starter.start_allreduce(self._flat[offset : offset + count])
        except CommError as error:
            return partial(_raise, error)

    def reduce(self, offset: int, count: int, token: Started | None = None) -> None:
        """Sum the slice over the ranks and divide it."""
        part = self._flat[offset : offset + count]
        if token is not None:
            token()
        else:
            self._sum(offset, part)
        _divide(part, self._divisor)

    def finish(self) -> None:
        """Do nothing."""


def _divide(part: numpy.ndarray, divisor: int) -> None:
    if divisor != 1:
        numpy.divide(part, divisor, out=part)


def _raise(error: CommError) -> NoReturn:
    raise error


class Streams(Protocol):
    """What staging asks of a device: copies beside its computation, on a stream for each direction."""

    def pinned_like(self, flat: torch.Tensor) -> torch.Tensor:
        """Return host memory of the same size that the device copies to and from by itself."""

    def copy_out(self, host: torch.Tensor, device: torch.Tensor) -> Any:
        """Start a copy to the host of what has been computed so far; return an event with `synchronize()`."""

    def copy_back(self, device: torch.Tensor, host: torch.Tensor) -> Any:
        """Start a copy to the device; return an event with `synchronize()`."""

    def finish(self) -> None:
        """Let the computing thread's stream wait for all copies back."""


class CudaStreams:
    """See `Streams`.

    The reducer's thread has GPU 0 as its current one, whichever the gradients are on: going back there from a stream
    would make a context on it, a few hundred MB for each rank. Going back by `device` makes none.
    """

    def __init__(self, device: torch.device) -> None:
        import torch

        self._torch = torch
        self._device = device
        self._out = torch.cuda.Stream(device)
        self._back = torch.cuda.Stream(device)

    def pinned_like(self, flat: torch.Tensor) -> torch.Tensor:
        """Return pinned memory."""
        return self._torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True)

    def copy_out(self, host: torch.Tensor, device: torch.Tensor) -> Any:
        """Copy once the computing thread's stream has got here."""
        self._out.wait_event(self._torch.cuda.current_stream(self._device).record_event())
        with self._torch.cuda.device(self._device), self._torch.cuda.stream(self._out):
            host.copy_(device, non_blocking=True)
            return self._out.record_event()

    def copy_back(self, device: torch.Tensor, host: torch.Tensor) -> Any:
        """Copy beside the next group's way out."""
        with self._torch.cuda.device(self._device), self._torch.cuda.stream(self._back):
            device.copy_(host, non_blocking=True)
            return self._back.record_event()

    def finish(self) -> None:
        """Wait on the device, not here."""
        self._torch.cuda.current_stream(self._device).wait_stream(self._back)


class DevicePath:
    """On a GPU: staged through pinned host memory, beside the backward pass.

    The copy to the host starts when a group is handed over, so it runs beside the all-reduce of the group before.
    MPI is never given device memory: nonblocking collectives on it crash in Open MPI.
    """

    def __init__(self, divisor: int, flat: torch.Tensor, summing: Sum, streams: Streams) -> None:
        self._divisor = divisor
        self._flat = flat.detach().view(-1)
        self._sum = summing
        self._streams = streams
        self._pinned = streams.pinned_like(self._flat)
        self._host = host_view(self._pinned)
        self.element_bytes = flat.element_size()

    def mark(self, offset: int, count: int) -> Any:
        """Start the copy to the host; return the event of its end."""
        part = slice(offset, offset + count)
        return self._streams.copy_out(self._pinned[part], self._flat[part])

    def reduce(self, offset: int, count: int, token: Any) -> None:
        """Take the mean over the ranks once the slice is on the host, and copy it back."""
        part = slice(offset, offset + count)
        token.synchronize()
        self._sum(offset, self._host[part])
        _divide(self._host[part], self._divisor)
        # The group's end is when its mean is back on the device, as the measured cost counts it.
        self._streams.copy_back(self._flat[part], self._pinned[part]).synchronize()

    def finish(self) -> None:
        """Let the computing thread's stream wait for the copies back."""
        self._streams.finish()
