"""What was sent to one rank and not received yet: of threads (`threaded.py`), and over sockets (`socket_messages.py`).

To find what would hang over MPI, where a large message is only sent once its receiver takes it, a message of a thread
counts as sent when it was received, however small it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import numpy

from mgcaffe.comm.transport.messages import Envelope
from mgcaffe.errors import CommError, PeerFailure

T = TypeVar("T")


class PendingMessage:
    """A message that was sent and not received yet; see `messages.Sending`."""

    def __init__(self, queue: MessageQueue, source: int, tag: int, parts: list[numpy.ndarray]) -> None:
        self.source = source
        self.tag = tag
        self.parts = parts
        self._queue = queue

    def is_done(self) -> bool:
        """Return whether it was received."""
        return not self._queue.holds(self)

    def wait(self) -> None:
        """Return once it was received."""
        self._queue.await_received(self)


class MessageQueue:
    """What was sent to one rank and not received yet.

    Args:
        rank: the one that receives, for the text of errors.
        timeout_s: after how long waiting without a limit is a failure.
        failure: returns why no message of a rank (None: any) can come any more; asked where none is there, whenever
            somebody begins to wait, or is woken.
    """

    def __init__(
        self, rank: int, timeout_s: float, failure: Callable[[int | None], CommError | None] = lambda source: None
    ) -> None:
        self._rank = rank
        self._timeout_s = timeout_s
        self._failure = failure
        self._changed = threading.Condition()
        self._pending: list[PendingMessage] = []
        self._is_broken = False
        self._is_abandoned = False

    def put(self, source: int, tag: int, parts: list[numpy.ndarray]) -> PendingMessage:
        """Add a message; its pieces are given away."""
        message = PendingMessage(self, source, tag, parts)
        with self._changed:
            if not self._is_abandoned:
                self._pending.append(message)
            self._changed.notify_all()
        return message

    def find(self, source: int | None, tag: int | None, patience_s: float | None) -> Envelope | None:
        """Return the envelope of the first message from a rank (None: any) with a tag (None: any); None: none came."""
        message = self._await(lambda: self._first(source, tag), patience_s, lambda: self._failure(source))
        return None if message is None else Envelope(message.source, message.tag, message.parts[0].size)

    def take(self, source: int, tag: int) -> list[numpy.ndarray]:
        """Return the pieces of the first message from a rank with a tag, once it has come."""
        message = self._await(lambda: self._first(source, tag), None, lambda: self._failure(source))
        assert message is not None
        with self._changed:
            self._pending.remove(message)
            self._changed.notify_all()
        return message.parts

    def holds(self, message: PendingMessage) -> bool:
        """Return whether a message has not been received yet."""
        with self._changed:
            return message in self._pending

    def await_received(self, message: PendingMessage) -> None:
        """Return once a message was received."""
        self._await(lambda: True if message not in self._pending else None, None)

    def wake(self) -> None:
        """Let all who wait ask again whether a message can still come."""
        with self._changed:
            self._changed.notify_all()

    def break_off(self) -> None:
        """End all waiting with `PeerFailure`."""
        with self._changed:
            self._is_broken = True
            self._changed.notify_all()

    def abandon(self) -> None:
        """Drop all messages, also those to come: their receiver is dead, or takes no more."""
        with self._changed:
            self._is_abandoned = True
            self._pending.clear()
            self._changed.notify_all()

    def _first(self, source: int | None, tag: int | None) -> PendingMessage | None:
        return next((each for each in self._pending if source in (None, each.source) and tag in (None, each.tag)), None)

    def _await(
        self,
        look: Callable[[], T | None],
        patience_s: float | None,
        failure: Callable[[], CommError | None] = lambda: None,
    ) -> T | None:
        """Return what `look` finds; None if it finds nothing within `patience_s`."""
        with self._changed:
            seconds = self._timeout_s if patience_s is None else patience_s
            self._changed.wait_for(lambda: look() is not None or self._is_broken or failure() is not None, seconds)
            found = look()
            if found is None and (reason := failure()) is not None:
                raise reason
            if found is None and (self._is_broken or patience_s is None):
                raise PeerFailure(f"waited without success for a message to or from rank {self._rank}")
            return found
