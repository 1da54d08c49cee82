"""Replaces a slice of gradients on a GPU by its mean over the ranks, without leaving the GPU: NCCL on a stream beside.

The computing thread's stream records an event when a group's gradients are complete; the reducer's thread enqueues the
sum behind this event on a stream of its own, and the division behind the sum. Nothing is copied to the host, and the
computing thread never waits on the host: `finish` lets its stream wait for the reducer's.

`Streams` is all that is asked of CUDA and NCCL, so that tests can put something slow in their place.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol

from mgcaffe.comm.transport.communicator import Communicator

if TYPE_CHECKING:
    import torch


class Streams(Protocol):
    """The computing thread's stream, and the one on which gradients are reduced."""

    def mark(self) -> Any:
        """Record on the computing thread's stream that it has come so far; return the event, with `synchronize()`."""

    def reduce(self, part: torch.Tensor, ready: Any) -> Any:
        """Enqueue the sum of `part` over the ranks behind an event, and the division; return the event of their end."""

    def finish(self) -> None:
        """Let the computing thread's stream wait for all that was enqueued."""


class NcclPath:
    """On a GPU, by NCCL; see `gradient_path.GradientPath`.

    Args:
        flat: the gradient buffer, on the GPU.
        streams: what enqueues.
    """

    def __init__(self, flat: torch.Tensor, streams: Streams) -> None:
        self._flat = flat.detach().view(-1)
        self._streams = streams
        self.element_bytes = flat.element_size()

    def mark(self, offset: int, count: int) -> Any:
        """Return the event behind which the slice is complete."""
        return self._streams.mark()

    def reduce(self, offset: int, count: int, token: Any) -> None:
        """Enqueue the mean behind that event, and wait until it is there: the group's end, as its cost counts it."""
        self._streams.reduce(self._flat[offset : offset + count], token).synchronize()

    def finish(self) -> None:
        """Let the computing thread's stream wait for the reduced slices."""
        self._streams.finish()


class NcclStreams:
    """See `Streams`.

    Args:
        group: the process group of NCCL.
        device: this rank's GPU.
        divisor: of the sums.
        cuda: `torch.cuda`; another one in tests.
    """

    def __init__(self, group: Any, device: torch.device, divisor: int, cuda: Any) -> None:
        self._group = group
        self._device = device
        self._divisor = divisor
        self._cuda = cuda
        self._stream = cuda.Stream(device)

    def mark(self) -> Any:
        """Record an event on the current stream."""
        return self._cuda.current_stream(self._device).record_event()

    def reduce(self, part: torch.Tensor, ready: Any) -> Any:
        """Sum and divide on the reducer's stream; NCCL has a stream of its own, for which it waits."""
        with self._cuda.device(self._device), self._cuda.stream(self._stream):
            self._stream.wait_event(ready)
            self._group.allreduce([part]).wait()
            if self._divisor != 1:
                part.div_(self._divisor)
            end = self._cuda.Event(blocking=True)
            end.record(self._stream)
            return end

    def finish(self) -> None:
        """Wait on the device, not here."""
        self._cuda.current_stream(self._device).wait_stream(self._stream)


def open_nccl(ranks: Communicator, device: torch.device, divisor: int) -> NcclStreams:
    """Return streams over NCCL, on which the ranks, each on a GPU of its own, reduce gradients; a collective call."""
    import torch
    import torch.distributed as dist

    from mgcaffe.comm.transport.process_group import LONG_S, ProcessGroupCommunicator
    from mgcaffe.comm.transport.rendezvous import place_through

    place = ranks.new_place() if isinstance(ranks, ProcessGroupCommunicator) else place_through(ranks)
    library: Any = dist
    options = library.ProcessGroupNCCL.Options()
    options._timeout = timedelta(seconds=LONG_S)
    with torch.cuda.device(device):
        group = library.ProcessGroupNCCL(place.store, place.rank, place.size, options)
    return NcclStreams(group, device, divisor, torch.cuda)
