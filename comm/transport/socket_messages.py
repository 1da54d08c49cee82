"""Messages from one rank to another without MPI: those of one communicator, over the connections that it shares."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy

from mgcaffe.comm.transport.buffers import host_view
from mgcaffe.comm.transport.communicator import name_ranks
from mgcaffe.comm.transport.message_queue import MessageQueue
from mgcaffe.comm.transport.messages import Envelope, Message, check_other
from mgcaffe.comm.transport.peer_connection import HEAD
from mgcaffe.errors import CommError, PeerFailure

if TYPE_CHECKING:
    from mgcaffe.comm.transport.connections import Connections
    from mgcaffe.comm.transport.peer_connection import OutgoingMessage
    from mgcaffe.comm.transport.rendezvous import StorePlace

_CLOSED = "a communicator was used after it was closed"


class SocketSending:
    """A message on its way; see `messages.Sending`."""

    def __init__(self, messages: SocketMessages, message: OutgoingMessage, to: int) -> None:
        self._messages = messages
        self._message = message
        self._to = to

    def is_done(self) -> bool:
        """Return whether the buffer may be used again."""
        if self._message.is_lost:
            self._messages.refuse_lost(self._to)
        return self._message.done.is_set()

    def wait(self) -> None:
        """Return once the buffer may be used again."""
        if not self._message.done.wait(self._messages.timeout_s):
            raise PeerFailure(f"rank {self._to} does not take what it is sent", failed=frozenset({self._to}))
        self.is_done()


class SocketMessages:
    """The messages of one communicator.

    A rank that is lost fails what needs it: to send to it, and to receive from it, or from any rank, once nothing more
    is there. If its loss is tolerated, what is sent to it is dropped, and who receives from any rank passes over it.

    Args:
        connections: of the ranks that all communicators were made of.
        place: the communicator's ranks.
        timeout_s: after how long waiting without a limit is a failure.
    """

    def __init__(self, connections: Connections, place: StorePlace, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._connections = connections
        self._place = place
        self._group = blake2b(place.name.encode(), digest_size=8).digest()
        self._tolerated: frozenset[int] = frozenset()
        self._is_closed = False
        self._queue = MessageQueue(place.rank, timeout_s, self._failure)
        connections.join(self._group, self._queue)

    @property
    def lost(self) -> frozenset[int]:
        """The ranks whose loss is tolerated and was noticed."""
        return self._gone() & self._tolerated

    def tolerate(self, ranks: Iterable[int]) -> None:
        """Go on when one of these ranks is lost."""
        self._tolerated = frozenset(ranks)

    def start_send(self, buffer: Any, to: int, tag: int) -> SocketSending:
        """Send a buffer without waiting."""
        check_other(self._place.rank, self._place.size, to)
        connections = self._open()
        content = host_view(buffer).view(numpy.uint8)
        head = HEAD.pack(content.size, self._group, self._place.rank, tag)
        sending = SocketSending(self, connections.send(self._place.number(to), head, content), to)
        sending.is_done()
        return sending

    def receive(self, buffer: Any, source: int, tag: int) -> None:
        """Fill a buffer by the next message, which has its size."""
        check_other(self._place.rank, self._place.size, source)
        self._open()
        content = host_view(buffer).view(numpy.uint8)
        (came,) = self._queue.take(source, tag)
        if came.size != content.size:
            raise CommError(
                f"rank {self._place.rank} expects {content.size} bytes of rank {source} with tag {tag}, and "
                f"{came.size} came"
            )
        content[:] = came

    def probe(self, source: int | None, tag: int | None, patience_s: float | None) -> Envelope | None:
        """Wait for a message without receiving it."""
        self._open()
        return self._queue.find(source, tag, patience_s)

    def receive_any(self, source: int | None, tag: int | None, patience_s: float | None) -> Message | None:
        """Receive the next message of any size."""
        found = self.probe(source, tag, patience_s)
        if found is None:
            return None
        (content,) = self._queue.take(found.source, found.tag)
        return Message(found.source, found.tag, content)

    def close(self) -> None:
        """Make every further call an error, also those that wait, and drop what comes; the connections stay."""
        self._is_closed = True
        self._connections.leave(self._group)

    def refuse_lost(self, rank: int) -> None:
        """Raise `PeerFailure`, unless the loss of that rank is tolerated."""
        if rank not in self._tolerated:
            raise _failure({rank})

    def _open(self) -> Connections:
        """Return the connections, which read from now on."""
        if self._is_closed:
            raise CommError(_CLOSED)
        self._connections.start()
        return self._connections

    def _gone(self) -> frozenset[int]:
        lost = self._connections.lost
        if not lost:
            return frozenset()
        return frozenset(rank for rank in range(self._place.size) if self._place.number(rank) in lost)

    def _failure(self, source: int | None) -> CommError | None:
        """Return why no message of a rank (None: any) can come any more."""
        if self._is_closed:
            return CommError(_CLOSED)
        gone = self._gone() - self._tolerated if source is None else self._gone() & {source}
        return _failure(gone) if gone else None


def _failure(ranks: Iterable[int]) -> PeerFailure:
    gone = frozenset(ranks)
    which, are, do = name_ranks(gone), "is" if len(gone) == 1 else "are", "does" if len(gone) == 1 else "do"
    return PeerFailure(f"{which} {are} gone, or {do} not answer (connection closed)", failed=gone)
