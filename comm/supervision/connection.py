"""A connection between two ranks, on whatever hosts, that carries lines of JSON and never blocks.

The kernel closes a connection when its process ends, however that comes about, which tells the other end at once.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import weakref
from typing import Any

from mgcaffe.errors import DataError
from mgcaffe.errors.checked_json import Json, parse_json

_MAX_BYTES = 1 << 20

_open: weakref.WeakSet[Connection] = weakref.WeakSet()


class Connection:
    """One end of a connection.

    Args:
        link: the socket; it is given away.
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


def _close_in_child() -> None:
    """Close all connections: a worker of a DataLoader must not keep those of its parent open."""
    for connection in list(_open):
        connection.close()


os.register_at_fork(after_in_child=_close_in_child)
