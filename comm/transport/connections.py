"""The connections over which ranks without MPI send each other messages: one of TCP between each two of them.

gloo sends and receives between two ranks too, but only what both know the size of, and from which rank and in which
order it comes. Servers take requests of any size from anybody (`messages.py`).

All communicators made of one another share the connections; each message says which group of ranks it belongs to. Ranks
listen where gloo does: on the interface that GLOO_SOCKET_IFNAME names, or else at the address of the host's name, or
else on the loopback interface. Whoever connects has to know a random token, which the ranks tell each other.
"""

from __future__ import annotations

import os
import secrets
import socket
import struct
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy

from mgcaffe.comm.transport.interface_address import interface_address
from mgcaffe.comm.transport.message_queue import MessageQueue
from mgcaffe.comm.transport.peer_connection import OutgoingMessage, PeerConnection
from mgcaffe.errors import CommError, PeerFailure

_CONNECT_S = 300.0
_HELLO_S = 10.0
_TOKEN_BYTES = 16
_RANK = struct.Struct("<I")


@dataclass(frozen=True)
class Address:
    """Where a rank listens.

    Attributes:
        host, port: the address.
        token: what a rank that connects has to send.
    """

    host: str
    port: int
    token: bytes


class Listener:
    """Where one rank waits for the others to connect, until `Connections` takes it over."""

    def __init__(self, ranks: int) -> None:
        self.socket = _bound_socket()
        self.socket.listen(ranks)
        host, port = self.socket.getsockname()[:2]
        self.address = Address(host, port, secrets.token_bytes(_TOKEN_BYTES))


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
        self._peers: dict[int, PeerConnection] = {}
        weakref.finalize(self, _close, self._peers, os.getpid())  # peers know of this object once they have started
        _made.add(self)
        deadline = time.monotonic() + min(timeout_s, _CONNECT_S)
        with listener.socket:
            for lower in range(rank):
                self._peers[lower] = PeerConnection(_connect(rank, lower, addresses[lower], deadline), lower)
            while missing := set(range(len(addresses))) - {rank, *self._peers}:
                higher, connected = _accept(listener, missing, deadline)
                self._peers[higher] = PeerConnection(connected, higher)

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

    def send(self, to: int, head: bytes, content: numpy.ndarray) -> OutgoingMessage:
        """Send a rank a message without waiting."""
        return self._peers[to].send(head, content)

    def close(self) -> None:
        """Close all of them, as the end of the process does; harmless when repeated."""
        _close(self._peers, os.getpid())

    def _deliver(self, group: bytes, source: int, tag: int, content: numpy.ndarray) -> None:
        with self._lock:
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


def _bound_socket() -> socket.socket:
    """Return a socket that is bound to an address by which the other ranks can reach this one."""
    for family, address in _own_addresses():
        candidate = socket.socket(family, socket.SOCK_STREAM)
        try:
            candidate.bind((address, 0))
        except OSError:
            candidate.close()
            continue
        return candidate
    raise CommError("this rank finds no address at which the others could reach it")


def _own_addresses() -> Iterator[tuple[int, str]]:
    interface = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]
    found = interface_address(interface) if interface else None
    if found is not None:
        yield socket.AF_INET, found
    try:
        for family, _, _, _, address in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM):
            yield family, str(address[0])
    except OSError:
        pass  # the name is not known
    yield socket.AF_INET, "127.0.0.1"


def _connect(rank: int, to: int, address: Address, deadline: float) -> socket.socket:
    try:
        left = max(0.1, deadline - time.monotonic())
        connected = socket.create_connection((address.host, address.port), left)
        connected.sendall(address.token + _RANK.pack(rank))
    except OSError as error:
        raise PeerFailure(
            f"rank {rank} cannot connect to rank {to} at {address.host} port {address.port}: {error}",
            failed=frozenset({to}),
            hint="GLOO_SOCKET_IFNAME names the network interface by which the ranks reach each other",
        ) from None
    return connected


def _accept(listener: Listener, missing: set[int], deadline: float) -> tuple[int, socket.socket]:
    """Return the next rank that connects, and its socket."""
    while True:
        listener.socket.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            connected, _ = listener.socket.accept()
        except TimeoutError:
            raise PeerFailure(
                f"rank {min(missing)} has not connected for messages", failed=frozenset({min(missing)})
            ) from None
        try:
            connected.settimeout(_HELLO_S)
            hello = connected.recv(_TOKEN_BYTES + _RANK.size, socket.MSG_WAITALL)
        except OSError:
            hello = b""
        if secrets.compare_digest(hello[:_TOKEN_BYTES], listener.address.token):
            (rank,) = _RANK.unpack(hello[_TOKEN_BYTES:])
            return rank, connected
        connected.close()  # nobody of ours
