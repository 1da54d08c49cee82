"""What trainers and servers of a job have to know of each other: who is asked to stop, and who has left.

A stop that is asked of any rank, of a server as well, goes to all trainers. Servers serve until all trainers have left.
Both go on a communicator of their own, so that they depend on no look-up and no synchronization.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy

from mgcaffe.comm.replicas.roles import Role, Roles
from mgcaffe.comm.supervision import status
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.transport.messages import Message, Sending
from mgcaffe.errors import PeerFailure

POLL_S = 0.05
"""How long a server waits for a request before it looks whether the trainers have left."""

_STOP, _LEFT = 1, 2
_WAITING = status.encode("waiting for requests of the trainers")


class Control:
    """One rank's part.

    Args:
        communicator: all ranks; for this alone.
        roles: who is what.
        wanted: returns why this rank is asked to stop; empty: it is not.
        on_stop: takes why another rank is asked to stop; on trainers.
        on_loss: takes the rank of a trainer that has died, where the others go on.

    Attributes:
        stopped_early: whether a trainer that has left was stopped.
    """

    def __init__(
        self,
        communicator: Communicator,
        roles: Roles,
        wanted: Callable[[], str],
        on_stop: Callable[[str], None],
        on_loss: Callable[[int], None] = lambda rank: None,
    ) -> None:
        self.stopped_early = False
        self._communicator = communicator
        self._roles = roles
        self._wanted = wanted
        self._on_stop = on_stop
        self._on_loss = on_loss
        self._has_passed_stop_on = False
        self._left: set[int] = set()
        self._failed: set[int] = set()
        self._lost: set[int] = set()
        self._sent: list[Sending] = []
        self._lock = threading.Lock()
        self._is_closed = False

    def look(self) -> None:
        """Pass a stop on, and take what others have sent; from any thread, about twice a second."""
        with self._lock:
            if self._is_closed:
                return
            if not self._has_passed_stop_on and (cause := self._wanted()):
                self._pass_stop_on(cause)
            while (message := self._communicator.receive_any(patience_s=0.0)) is not None:
                self._take(message)
            for rank in self._communicator.lost - self._lost:
                self._lost.add(rank)
                self._on_loss(rank)

    def trainers_have_left(self) -> bool:
        """Return whether all trainers have left, as of the latest look.

        Raises:
            PeerFailure: they have, and some by an error, which they report.
        """
        if len(self._left | self._lost) < self._roles.trainers:
            return False
        if self._failed:
            raise PeerFailure("the trainers have failed")
        return True

    def leave(self, *, failed: bool = False, stopped_early: bool = False) -> None:
        """Let all servers know that this trainer is done with them; the last call.

        Args:
            failed: whether it ends by an error; the servers are then not waited for.
            stopped_early: whether it was stopped.
        """
        with self._lock:
            self._is_closed = True
            content = numpy.array([failed, stopped_early], numpy.uint8)
            servers = range(self._roles.trainers, self._roles.size)
            self._sent += [self._communicator.start_send(content, server, _LEFT) for server in servers]
            if not failed:
                for sending in self._sent[-len(servers) :]:
                    sending.wait()

    def _pass_stop_on(self, cause: str) -> None:
        self._has_passed_stop_on = True
        rank = self._communicator.rank
        text = f"{cause} at rank {rank} ({self._roles.of(rank).value})"
        content = numpy.frombuffer(text.encode(), numpy.uint8)
        for trainer in self._roles.ranks(Role.TRAINER):
            if trainer != rank:
                self._sent.append(self._communicator.start_send(content, trainer, _STOP))

    def _take(self, message: Message) -> None:
        if message.tag == _STOP:
            self._has_passed_stop_on = True
            self._on_stop(message.content.tobytes().decode())
            return
        failed, stopped_early = message.content.tolist()
        self._left.add(message.source)
        self.stopped_early = self.stopped_early or bool(stopped_early)
        if failed:
            self._failed.add(message.source)


def serve(step: Callable[[float], bool], control: Control) -> None:
    """Serve requests until all trainers have left and none is there any more; the loop of every server.

    Args:
        step: waits for a request for so many seconds and serves it; returns whether there was one.
        control: of this rank.

    Raises:
        PeerFailure: trainers have failed.
    """
    record = status.current()
    while True:
        control.look()
        has_left = control.trainers_have_left()
        record.doing(_WAITING)
        try:
            was_asked = step(POLL_S)
        except PeerFailure as failure:
            if not failure.failed or not failure.failed <= record.tolerated:
                raise
            was_asked = True
        if not was_asked and has_left:
            return
