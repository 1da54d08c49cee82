"""Connections of ranks 1 and up to rank 0, on whatever hosts, that carry lines of JSON; none ever blocks.

The kernel closes a connection when its process ends, however that comes about, which tells the other end at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
import weakref
from typing import Any

from mgcaffe.comm.transport.interface_address import interface_address
from mgcaffe.errors import DataError
from mgcaffe.errors.checked_json import Json, parse_json

_TRY_S = 2.0
_MAX_BYTES = 1 << 20

_open: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection:
    """One end of a connection.

    Args:
        link: the socket.
    """

    def __init__(self, link: socket.socket) -> None:
        link.setblocking(False)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._link = link
        self._lock = threading.Lock()
        self._unsent = b""
        self._received = b""
        _open.add(self)

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._link.fileno()

    def send(self, message: Any) -> None:
        """Send a message, unless the other end takes none at present; a broken connection is seen by `receive`."""
        with self._lock:
            if self._unsent:
                self._flush()
            if not self._unsent:
                self._unsent = json.dumps(message).encode() + b"\n"
                self._flush()

    def _flush(self) -> None:
        try:
            self._unsent = self._unsent[self._link.send(self._unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self._unsent = b""

    def receive(self) -> list[Json] | None:
        """Return the messages that have come; None: the other end is closed.

        Raises:
            DataError: what came is no message.
        """
        is_closed = False
        try:
            while not is_closed:
                part = self._link.recv(1 << 16)
                self._received += part
                is_closed = not part
        except BlockingIOError:
            pass
        except OSError:
            is_closed = True
        *lines, self._received = self._received.split(b"\n")
        if len(self._received) > _MAX_BYTES:
            raise DataError("a message between ranks has no end")
        messages = [parse_json(line, "connection", "this is no message of a rank") for line in lines]
        return messages if messages or not is_closed else None

    def close(self) -> None:
        """Close this end; harmless when repeated."""
        self._link.close()


def listen() -> socket.socket:
    """Return a socket on a port of its own that every host can connect to."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    server = socket.create_server(("", 0), family=family, backlog=128, dualstack_ipv6=both)
    server.setblocking(False)
    return server


def accept(server: socket.socket) -> Connection | None:
    """Return a connection that was made; None: there is none."""
    try:
        return Connection(server.accept()[0])
    except OSError:
        return None


def own_addresses() -> list[str]:
    """Return the addresses by which other ranks may reach this host, the likeliest first."""
    chosen = os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")
    names = sorted((name for _, name in socket.if_nameindex()), key=lambda name: (name not in chosen, name != "lo"))
    found = [address for name in names if (address := interface_address(name)) is not None]
    return list(dict.fromkeys([*found, socket.gethostname(), "localhost"]))


def connect_to(addresses: list[str], port: int, hello: dict[str, Any]) -> tuple[Connection, Json] | None:
    """Return a connection to the first address where somebody answers a greeting, and the answer; None: there is none.

    Args:
        addresses: where the other end may be.
        port: its port there.
        hello: the greeting; its `token` has to come back.
    """
    for address in addresses:
        try:
            connection = Connection(socket.create_connection((address, port), timeout=_TRY_S))
        except OSError:
            continue
        connection.send(hello)
        with contextlib.suppress(DataError):
            answer = _first_message(connection)
            if answer is not None and answer["token"].text() == hello["token"]:
                return connection, answer
        connection.close()
    return None


def _first_message(connection: Connection) -> Json | None:
    deadline = time.monotonic() + _TRY_S
    while time.monotonic() < deadline:
        messages = connection.receive()
        if messages is None:
            return None
        if messages:
            return messages[0]
        time.sleep(1e-3)
    return None


def _close_in_child() -> None:
    """Close all connections: a worker of a DataLoader must not keep those of its parent open."""
    for connection in list(_open):
        connection.close()


os.register_at_fork(after_in_child=_close_in_child)
