"""The connections over which ranks without MPI send each other messages: one of TCP between each two of them.

gloo sends and receives between two ranks too, but only what both know the size of, and from which rank and in which
order it comes. Servers take requests of any size from anybody (`messages.py`).

All communicators made of one another share the connections; each message says which group of ranks it belongs to. Ranks
listen where gloo does (`host_addresses.py`), and know each other by a greeting (`listener.py`).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial

import numpy

from mgcaffe.comm.transport.listener import Address, Listener, await_answer, greet
from mgcaffe.comm.transport.message_queue import MessageQueue
from mgcaffe.comm.transport.peer_connection import OutgoingMessage, PeerConnection
from mgcaffe.errors import PeerFailure

_CONNECT_S = 300.0
_LEAST_S = 0.1


class Connections:
    """The connections of one rank. Making them is a collective call: each rank connects to those below it.

    Nothing is read, and no rank's end noticed, before `start`.

    Args:
        rank: this one.
        listener: its own.
        addresses: those of all ranks, by rank.
        timeout_s: after how many seconds of waiting for another rank it is an error.

    Attributes:
        lost: the ranks whose connections are gone.

    Raises:
        PeerFailure: another rank has not come, or cannot be reached.
    """

    def __init__(self, rank: int, listener: Listener, addresses: list[Address], timeout_s: float) -> None:
        self.lost: set[int] = set()
        self._lock = threading.Lock()
        self._has_started = False
        self._queues: dict[bytes, MessageQueue] = {}
        self._early: dict[bytes, list[tuple[int, int, numpy.ndarray]]] = {}
        self._left: set[bytes] = set()
        self._peers: dict[int, PeerConnection] = {}
        weakref.finalize(self, _close, self._peers, os.getpid())  # peers know of this object once they have started
        _made.add(self)
        with contextlib.closing(listener):
            self._connect(rank, listener, addresses, time.monotonic() + min(timeout_s, _CONNECT_S))

    def _connect(self, rank: int, listener: Listener, addresses: list[Address], deadline: float) -> None:
        """Greet the lower ranks, answer the higher ones, and only then wait for answers: so nobody waits in a chain."""
        greeted = {}
        for lower in range(rank):
            with _naming(rank, lower, addresses[lower]):
                greeted[lower] = greet(addresses[lower], rank, max(_LEAST_S, deadline - time.monotonic()))
            self._peers[lower] = PeerConnection(greeted[lower], lower)
        while missing := set(range(len(addresses))) - {rank, *self._peers}:
            left = deadline - time.monotonic()
            if left < 0:
                first = min(missing)
                raise PeerFailure(f"rank {first} has not connected for messages", failed=frozenset({first}))
            for higher, connected in listener.poll(left):
                if higher in missing:
                    self._peers[higher] = PeerConnection(connected, higher)
                else:
                    connected.close()
        for lower, connected in greeted.items():
            with _naming(rank, lower, addresses[lower]):
                await_answer(connected, addresses[lower], max(_LEAST_S, deadline - time.monotonic()))
            connected.settimeout(None)

    def start(self) -> None:
        """Begin to read what comes; harmless when repeated."""
        if not self._has_started:
            with self._lock:
                if self._has_started:
                    return
                self._has_started = True
            for peer, connection in self._peers.items():
                connection.start(self._deliver, partial(self._lose, peer))

    def join(self, group: bytes, queue: MessageQueue) -> None:
        """Put a group's messages into a queue from now on, and those that have come already."""
        with self._lock:
            self._queues[group] = queue
            for source, tag, content in self._early.pop(group, []):
                queue.put(source, tag, [content])

    def leave(self, group: bytes) -> None:
        """Drop a group's messages from now on; harmless when repeated."""
        with self._lock:
            self._left.add(group)
            queue = self._queues.pop(group, None)
        if queue is not None:
            queue.abandon()

    def send(self, to: int, head: bytes, content: numpy.ndarray) -> OutgoingMessage:
        """Send a rank a message without waiting."""
        return self._peers[to].send(head, content)

    def close(self) -> None:
        """Close all of them, as the end of the process does; harmless when repeated."""
        _close(self._peers, os.getpid())

    def _deliver(self, group: bytes, source: int, tag: int, content: numpy.ndarray) -> None:
        with self._lock:
            if group in self._left:
                return
            queue = self._queues.get(group)
            if queue is None:  # this rank has not made the group yet
                self._early.setdefault(group, []).append((source, tag, content))
                return
        queue.put(source, tag, [content])

    def _lose(self, peer: int) -> None:
        self.lost.add(peer)
        with self._lock:
            queues = list(self._queues.values())
        for queue in queues:
            queue.wake()

    def abandon(self) -> None:
        """Let go of all of them in a forked process, which has copies of the descriptors; those of its parent stay."""
        for connection in self._peers.values():
            connection.abandon()


_made: weakref.WeakSet[Connections] = weakref.WeakSet()


def _close(peers: dict[int, PeerConnection], process: int) -> None:
    if os.getpid() == process:
        for connection in peers.values():
            connection.close()


def _abandon_in_child() -> None:
    for connections in list(_made):
        connections.abandon()


os.register_at_fork(after_in_child=_abandon_in_child)


@contextlib.contextmanager
def _naming(rank: int, to: int, address: Address) -> Iterator[None]:
    """Turn an error of a connection into a `PeerFailure` that names the other rank."""
    try:
        yield
    except OSError as error:
        raise PeerFailure(
            f"rank {rank} cannot connect to rank {to} at {address.hosts[0]} port {address.port}: {error}",
            failed=frozenset({to}),
            hint="GLOO_SOCKET_IFNAME names the network interface by which the ranks reach each other",
        ) from None
