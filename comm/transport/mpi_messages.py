"""Messages from one rank to another over MPI: nonblocking calls that are polled, as `MpiCommunicator`'s others are."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy

from mgcaffe.comm.transport import messages
from mgcaffe.comm.transport.messages import Envelope, Message, check_other, pieces
from mgcaffe.errors import CommError, PeerFailure

if TYPE_CHECKING:
    from mpi4py import MPI


class Caller(Protocol):
    """What makes MPI calls: the communicator, with its lock, its way of waiting and its errors."""

    rank: int
    size: int

    def call(self, function: Callable[[], Any]) -> Any:
        """Make one MPI call that does not wait."""

    def poll(self, test: Callable[[], bool], patience_s: float | None = None) -> bool:
        """Call a nonblocking test until it returns True; False if it takes longer than `patience_s`."""

    def tolerates(self, failure: PeerFailure) -> bool:
        """Return whether a failure is the death of ranks that is tolerated."""

    def passes_over(self, error: MPI.Exception) -> bool:
        """Note the death of ranks that is tolerated, if it made a look for messages fail; return whether it did."""


class MpiSending:
    """A message on its way; see `messages.Sending`."""

    def __init__(self, caller: Caller, requests: list[MPI.Request]) -> None:
        self._caller = caller
        self._requests = requests

    def is_done(self) -> bool:
        """Return whether MPI has done with the buffer."""
        try:
            self._requests = [request for request in self._requests if not self._caller.call(request.Test)]
        except PeerFailure as failure:
            if not self._caller.tolerates(failure):
                raise
            self._requests = []
        return not self._requests

    def wait(self) -> None:
        """Wait until MPI has done with the buffer."""
        self._caller.poll(self.is_done)


class MpiMessages:
    """The messages of one MPI communicator.

    Args:
        mpi: mpi4py's module.
        caller: makes the calls.
    """

    def __init__(self, mpi: Any, caller: Caller) -> None:
        self._mpi = mpi
        self._caller = caller

    def start_send(self, comm: MPI.Intracomm, buffer: Any, to: int, tag: int) -> MpiSending:
        """Hand a buffer's pieces over to MPI."""
        check_other(self._caller.rank, self._caller.size, to)
        try:
            requests = [self._caller.call(partial(comm.Isend, part, to, tag)) for part in pieces(buffer)]
        except PeerFailure as failure:
            if not self._caller.tolerates(failure):
                raise
            requests = []
        return MpiSending(self._caller, requests)

    def receive(self, comm: MPI.Intracomm, buffer: Any, source: int, tag: int) -> None:
        """Fill a buffer by the next message, which has its size."""
        check_other(self._caller.rank, self._caller.size, source)
        for part in pieces(buffer):
            found = self.probe(comm, source, tag, None)
            assert found is not None
            if found.bytes != part.size:
                raise CommError(
                    f"rank {self._caller.rank} expects {part.size} bytes of rank {source} with tag {tag}, and "
                    f"{found.bytes} came"
                )
            self._receive_piece(comm, part, source, tag)

    def probe(
        self, comm: MPI.Intracomm, source: int | None, tag: int | None, patience_s: float | None
    ) -> Envelope | None:
        """Wait for a message without receiving it."""
        status = self._mpi.Status()
        whom = self._mpi.ANY_SOURCE if source is None else source
        what = self._mpi.ANY_TAG if tag is None else tag

        def look() -> bool:
            try:
                return bool(comm.Iprobe(whom, what, status))
            except self._mpi.Exception as error:
                if source is not None or not self._caller.passes_over(error):
                    raise
                return False

        if not self._caller.poll(lambda: self._caller.call(look), patience_s):
            return None
        return Envelope(status.Get_source(), status.Get_tag(), status.Get_count(self._mpi.BYTE))

    def receive_any(
        self, comm: MPI.Intracomm, source: int | None, tag: int | None, patience_s: float | None
    ) -> Message | None:
        """Receive the next message of any size."""
        found = self.probe(comm, source, tag, patience_s)
        if found is None:
            return None
        parts: list[numpy.ndarray] = []
        while True:
            parts.append(numpy.empty(found.bytes, numpy.uint8))
            self._receive_piece(comm, parts[-1], found.source, found.tag)
            if parts[-1].size < messages.PIECE:
                break
            found = self.probe(comm, found.source, found.tag, None)
            assert found is not None
        return Message(found.source, found.tag, parts[0] if len(parts) == 1 else numpy.concatenate(parts))

    def _receive_piece(self, comm: MPI.Intracomm, part: numpy.ndarray, source: int, tag: int) -> None:
        request = self._caller.call(partial(comm.Irecv, part, source, tag))
        self._caller.poll(lambda: self._caller.call(request.Test))
