"""The interface of a communicator (a group of ranks), and the communicator of a single rank.

`connect.py` returns a `SingleCommunicator` (no MPI needed), an `MpiCommunicator`, or under torchrun a
`ProcessGroupCommunicator`. Their users never ask which one they have, but for what `transport` says.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeVar

from mgcaffe.errors import CommError

if TYPE_CHECKING:
    import numpy

    from mgcaffe.comm.transport.messages import Envelope, Message, Sending

T = TypeVar("T")
Operation = Literal["sum", "max", "min"]


@dataclass(frozen=True)
class Waiting:
    """How a thread waits for a collective call.

    Attributes:
        blocking: True: MPI's blocking call, which spins and keeps a core busy until the peers have come.
            False: the nonblocking call, tested again and again.
        spin_s: tested without a pause (but yielding the core) for the first so many seconds.
        busy_spin_s: the same where the caller has nothing better to do.
        sleep_s: the shortest pause between two tests after that.
        max_sleep_s: up to which it grows, as a hundredth of the time waited so far: after a long time little is lost
            by a longer one, and each test takes time from the computation.
        at_once: how many all-reduces that go on by themselves may be on their way at a time.
    """

    blocking: bool = False
    spin_s: float = 50e-6
    busy_spin_s: float = 5e-3
    sleep_s: float = 200e-6
    max_sleep_s: float = 1e-3
    at_once: int = 1

    def pause(self, waited: float) -> float:
        """Return the seconds to sleep until the next test, after so many seconds."""
        return max(self.sleep_s, min(waited / 100, self.max_sleep_s))


class Communicator(Protocol):
    """A group of ranks.

    Every method but those of messages, `abort`, `set_busy_polling` and `close` is collective: all ranks call it alike.
    A buffer is a contiguous numpy array or torch tensor (any device; of messages: on the CPU); it is changed in place.
    One communicator is used by one thread; another thread takes a `duplicate()`, whose calls never mix with this
    one's. Messages alone may be sent by one thread while another one receives.

    Messages go from one rank to another one (`messages.py`), with tags from 0 to 32767. What one rank sends another
    with one tag arrives in that order. Who answers requests does it by `start_send`, and receives on: two ranks that
    `send` each other large messages wait for ever.

    `lost` are the ranks that have died and whose death is tolerated (`tolerate`), as far as was noticed; `has_shrunk`
    says whether `shrink` has left some behind. `transport` is "none" (one rank), "mpi", "gloo" or "threads".
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    host: str
    library: str
    transport: str
    has_shrunk: bool

    @property
    def lost(self) -> frozenset[int]:
        """The ranks that have died and whose death is tolerated."""

    def allreduce(self, buffer: Any, op: Operation = "sum") -> None:
        """Replace the buffer by the sum (or maximum, minimum) over the ranks, equal to the bit on all."""

    def reduce(self, buffer: Any, root: int = 0) -> None:
        """Replace the root's buffer by the sum over the ranks; the others' hold nothing useful afterwards."""

    def broadcast(self, buffer: Any, root: int = 0) -> None:
        """Replace the buffer on every rank by the root's."""

    def alltoallv(
        self, send: numpy.ndarray, send_counts: Sequence[int], receive: numpy.ndarray, receive_counts: Sequence[int]
    ) -> None:
        """Send each rank its part of `send`, part after part by rank, and fill `receive` likewise."""

    def allgatherv(self, send: numpy.ndarray, receive: numpy.ndarray, counts: Sequence[int]) -> None:
        """Fill `receive` with the parts that all ranks send, by rank; `counts` are their elements."""

    def gather(self, value: T) -> list[T] | None:
        """Return the values of all ranks by rank on rank 0, None elsewhere."""

    def allgather(self, value: T) -> list[T]:
        """Return the values of all ranks by rank, on every rank."""

    def broadcast_object(self, value: T, root: int = 0) -> T:
        """Return the root's value on every rank."""

    def barrier(self) -> None:
        """Return when every rank has called."""

    def send(self, buffer: Any, to: int, tag: int = 0) -> None:
        """Send a rank a buffer; returns when the buffer may be changed, which may be when it is received."""

    def start_send(self, buffer: Any, to: int, tag: int = 0) -> Sending:
        """Send a rank a buffer without waiting; the buffer must stay as it is until the result says that it is done."""

    def receive(self, buffer: Any, source: int, tag: int = 0) -> None:
        """Fill a buffer by a rank's next message with that tag.

        Raises:
            CommError: the message has another size.
        """

    def receive_any(
        self, source: int | None = None, tag: int | None = None, patience_s: float | None = None
    ) -> Message | None:
        """Return the next message, of any size, from a rank (None: any), with a tag (None: any).

        Returns:
            None if none has come within `patience_s` (0: look once; None: wait for ever).
        """

    def probe(
        self, source: int | None = None, tag: int | None = None, patience_s: float | None = None
    ) -> Envelope | None:
        """Do as `receive_any`, but leave the message to be received by its source and tag."""

    def tolerate(self, ranks: Iterable[int]) -> None:
        """Let messages go on when one of these ranks dies, where MPI survives that (`ulfm.py`).

        What is sent to it is dropped, and who receives from any rank passes over it. To receive from it alone fails as
        before, and so does every collective call. Not collective.
        """

    def shrink(self) -> None:
        """Go on without the ranks that have died, with new numbers in the same order; collective, of those alive."""

    def meet(self, message: bytes, patience_s: float | None) -> list[bytes] | None:
        """Return the messages of all ranks, or None if one has not come within `patience_s` (None: for ever).

        It runs beside all other calls, so that a rank can meet others while its own calls are unfinished.
        """

    def duplicate(self, waiting: Waiting | None = None) -> Communicator:
        """Return a group of the same ranks whose calls are separate from this one's, for another thread."""

    def split(self, color: int | None) -> Communicator | None:
        """Return the group of the ranks that give the same number, by rank; None for a rank that gives None."""

    def set_busy_polling(self, enabled: bool) -> None:
        """Poll without a pause at first (`Waiting.busy_spin_s`), or not; may be called from another thread.

        To be enabled while the caller has nothing to compute.
        """

    def set_waiting(self, waiting: Waiting) -> None:
        """Wait in another way from the next call on; a collective call, between two others."""

    def abort(self, code: int) -> NoReturn:
        """End all ranks at once with a non-zero exit code."""

    def close(self) -> None:
        """Give up this communicator; harmless when repeated."""


class SingleCommunicator:
    """One rank alone: every collective call is already done."""

    rank = 0
    size = 1
    local_rank = 0
    local_size = 1
    library = "none"
    transport = "none"
    lost: frozenset[int] = frozenset()
    has_shrunk = False

    def __init__(self) -> None:
        self.host = socket.gethostname()

    def allreduce(self, buffer: Any, op: Operation = "sum") -> None:
        """Leave the buffer as it is."""

    def reduce(self, buffer: Any, root: int = 0) -> None:
        """Leave the buffer as it is."""

    def broadcast(self, buffer: Any, root: int = 0) -> None:
        """Leave the buffer as it is."""

    def alltoallv(
        self, send: numpy.ndarray, send_counts: Sequence[int], receive: numpy.ndarray, receive_counts: Sequence[int]
    ) -> None:
        """Copy."""
        receive[:] = send

    def allgatherv(self, send: numpy.ndarray, receive: numpy.ndarray, counts: Sequence[int]) -> None:
        """Copy."""
        receive[:] = send

    def gather(self, value: T) -> list[T] | None:
        """Return [value]."""
        return [value]

    def allgather(self, value: T) -> list[T]:
        """Return [value]."""
        return [value]

    def broadcast_object(self, value: T, root: int = 0) -> T:
        """Return the value."""
        return value

    def barrier(self) -> None:
        """Return."""

    def send(self, buffer: Any, to: int, tag: int = 0) -> None:
        """Refuse: there is no other rank."""
        raise _nobody(f"rank {to}")

    def start_send(self, buffer: Any, to: int, tag: int = 0) -> Sending:
        """Refuse: there is no other rank."""
        raise _nobody(f"rank {to}")

    def receive(self, buffer: Any, source: int, tag: int = 0) -> None:
        """Refuse: there is no other rank."""
        raise _nobody(f"rank {source}")

    def receive_any(
        self, source: int | None = None, tag: int | None = None, patience_s: float | None = None
    ) -> Message | None:
        """Return None after `patience_s`; without an end to it, refuse."""
        if patience_s is None:
            raise _nobody("any rank" if source is None else f"rank {source}")
        time.sleep(patience_s)
        return None

    def probe(
        self, source: int | None = None, tag: int | None = None, patience_s: float | None = None
    ) -> Envelope | None:
        """Do as `receive_any`."""
        self.receive_any(source, tag, patience_s)
        return None

    def tolerate(self, ranks: Iterable[int]) -> None:
        """Do nothing: there is no other rank."""

    def shrink(self) -> None:
        """Do nothing: there is no other rank."""

    def meet(self, message: bytes, patience_s: float | None) -> list[bytes] | None:
        """Return [message]."""
        return [message]

    def duplicate(self, waiting: Waiting | None = None) -> SingleCommunicator:
        """Return another group of one."""
        return SingleCommunicator()

    def split(self, color: int | None) -> SingleCommunicator | None:
        """Return another group of one."""
        return None if color is None else SingleCommunicator()

    def set_busy_polling(self, enabled: bool) -> None:
        """Do nothing: there is nothing to wait for."""

    def set_waiting(self, waiting: Waiting) -> None:
        """Do nothing: there is nothing to wait for."""

    def abort(self, code: int) -> NoReturn:
        """End this process."""
        os._exit(code)

    def close(self) -> None:
        """Do nothing."""


def _nobody(whom: str) -> CommError:
    return CommError(f"rank 0 of 1 has no messages to or from {whom}")


def name_ranks(ranks: Iterable[int]) -> str:
    """Return "rank 3" or "ranks 0-2,5" for a message."""
    ordered = sorted(ranks)
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"{'rank' if len(ordered) == 1 else 'ranks'} {text}"
