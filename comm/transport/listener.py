"""How one rank of a job connects to another over TCP: where a rank listens, and the greeting that tells ranks apart.

    address = listener.address                      travels by the store, or by MPI
    connected = greet(address, rank, patience_s)    another rank connects, and says which one it is
    listener.poll(patience_s)                       gives that rank and its socket, and answers
    await_answer(connected, address, patience_s)    the other rank knows that it has reached the right one

A greeting is a random token, which only the ranks of the job know, and the rank's number, 20 bytes in all; the answer
is a digest of the token. So whoever else connects learns nothing. The token goes over the network as it is, and keeps
out those who come across a port, not those who read the ranks' traffic.

Nobody is waited for: strangers may connect, say nothing, little or anything, and the ranks among them are found as soon
as their greetings are there. A stranger is turned away after 20 other bytes, after ten seconds, or when too many have
come.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import struct
import time
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from mgcaffe.errors import CommError

HELLO_S = 10.0
"""For so long a connection may be open without a greeting."""
MOST_STRANGERS = 256
"""So many may be open so; each takes a descriptor."""

_TOKEN_BYTES = 16
_HELLO = struct.Struct(f"<{_TOKEN_BYTES}sI")
_BACKLOG = 1024
_PAUSE_S = 0.01

_open: weakref.WeakSet[Listener] = weakref.WeakSet()


@dataclass(frozen=True)
class Address:
    """Where a rank listens.

    Attributes:
        hosts: addresses of its host, the likeliest to be reached first.
        port: the port.
        token: what a rank that connects has to send.
    """

    hosts: tuple[str, ...]
    port: int
    token: bytes

    @property
    def answer(self) -> bytes:
        """What a rank that has sent the token gets back."""
        return blake2b(self.token, digest_size=_TOKEN_BYTES).digest()


@dataclass
class _Stranger:
    """Who has connected and not said all of a greeting yet: what it said, and since when it is there."""

    said: bytes
    since: float


class Listener:
    """A port of this rank, to which others connect.

    Args:
        hosts: the addresses to listen on: the first that is this host's.
        reached_by: the addresses that other ranks try; empty: that one.

    Attributes:
        address: where the others find it.

    Raises:
        CommError: none of the addresses is this host's.
    """

    def __init__(self, hosts: Iterable[str], reached_by: Sequence[str] = ()) -> None:
        self._server, host = _bound_socket(hosts)
        self._server.setblocking(False)
        self.address = Address(
            tuple(reached_by) or (host,), self._server.getsockname()[1], secrets.token_bytes(_TOKEN_BYTES)
        )
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._strangers: dict[socket.socket, _Stranger] = {}
        _open.add(self)

    def fileno(self) -> int:
        """Return a descriptor that is readable when `poll` has something to do, for another selector."""
        return self._selector.fileno()

    def poll(self, patience_s: float) -> list[tuple[int, socket.socket]]:
        """Look once for what came.

        Args:
            patience_s: how long to wait until anything comes, from whomever.

        Returns:
            The ranks whose greetings are complete now, and their sockets, which don't block.
        """
        found = []
        for key, _ in self._selector.select(max(0.0, patience_s)):
            if key.fileobj is self._server:
                self._accept()
            elif isinstance(key.fileobj, socket.socket) and (rank := self._hear(key.fileobj)) is not None:
                found.append((rank, key.fileobj))
        now = time.monotonic()
        for stranger in [each for each, seen in self._strangers.items() if now - seen.since > HELLO_S]:
            self._turn_away(stranger)
        return found

    def close(self) -> None:
        """Listen no longer, and turn away who has not greeted; harmless when repeated."""
        self._server.close()
        for stranger in self._strangers:
            stranger.close()
        self._strangers.clear()
        self._selector.close()

    def _accept(self) -> None:
        try:
            connected, _ = self._server.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # this process may open no more descriptors, or there is no memory for another
            for stranger in list(self._strangers):
                self._turn_away(stranger)
            time.sleep(_PAUSE_S)
            return
        connected.setblocking(False)
        if len(self._strangers) >= MOST_STRANGERS:
            self._turn_away(next(iter(self._strangers)))
        self._strangers[connected] = _Stranger(b"", time.monotonic())
        self._selector.register(connected, selectors.EVENT_READ)

    def _hear(self, connected: socket.socket) -> int | None:
        """Read what somebody says; return the rank if that completes its greeting."""
        stranger = self._strangers.get(connected)
        if stranger is None:
            return None  # turned away by now
        try:
            part = connected.recv(_HELLO.size - len(stranger.said))
        except BlockingIOError:
            return None
        except OSError:
            part = b""
        stranger.said += part
        if part and len(stranger.said) < _HELLO.size:
            return None
        token = stranger.said[:_TOKEN_BYTES]
        if len(stranger.said) == _HELLO.size and secrets.compare_digest(token, self.address.token):
            with contextlib.suppress(OSError):  # whoever gets the socket finds that it is closed
                connected.send(self.address.answer)
            self._forget(connected)
            rank: int = _HELLO.unpack(stranger.said)[1]
            return rank
        self._turn_away(connected)
        return None

    def _turn_away(self, stranger: socket.socket) -> None:
        self._forget(stranger)
        stranger.close()

    def _forget(self, connected: socket.socket) -> None:
        del self._strangers[connected]
        self._selector.unregister(connected)


def greet(address: Address, rank: int, patience_s: float, host: str | None = None) -> socket.socket:
    """Connect to a rank's listener and send the greeting, without waiting for the answer.

    Args:
        address: where the other rank listens.
        rank: this one.
        patience_s: for so long connecting may take.
        host: which of the address's hosts; None: the first.

    Raises:
        OSError: nobody listens there.
    """
    connected = socket.create_connection((host or address.hosts[0], address.port), patience_s)
    try:
        connected.sendall(_HELLO.pack(address.token, rank))
    except OSError:
        connected.close()
        raise
    return connected


def await_answer(connected: socket.socket, address: Address, patience_s: float) -> None:
    """Wait until the other rank has answered a greeting, and not read any further.

    Raises:
        OSError: it has not in time, or somebody else answers.
    """
    deadline = time.monotonic() + patience_s
    answer = b""
    while len(answer) < _TOKEN_BYTES:
        connected.settimeout(max(1e-3, deadline - time.monotonic()))
        part = connected.recv(_TOKEN_BYTES - len(answer))
        if not part:
            raise ConnectionError("the connection was closed")
        answer += part
    if not secrets.compare_digest(answer, address.answer):
        raise ConnectionError("no rank of this job answers there")


def _bound_socket(hosts: Iterable[str]) -> tuple[socket.socket, str]:
    """Return a socket that listens on the first address that is this host's (empty: on all), and the address."""
    for host in hosts:
        with contextlib.suppress(OSError):
            if not host:
                both = socket.has_dualstack_ipv6()
                family = socket.AF_INET6 if both else socket.AF_INET
                return socket.create_server(("", 0), family=family, backlog=_BACKLOG, dualstack_ipv6=both), host
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, 0), family=family, backlog=_BACKLOG), host
    raise CommError("this rank finds no address at which the others could reach it")


def _close_in_child() -> None:
    """Close the descriptors of listeners in a forked process, whose parent goes on with them."""
    for listener in list(_open):
        listener.close()


os.register_at_fork(after_in_child=_close_in_child)
