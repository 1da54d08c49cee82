"""Who connects to a rank's listener without belonging to the job: silent, or with rubbish, or half a greeting."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from mgcaffe.comm.transport import listener
from mgcaffe.comm.transport.listener import Listener

SILENT = b""
HALF = bytes(7)
WRONG = bytes(20)
HUGE = struct.pack("<Q", 1 << 60) * 40
HTTP = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
SAYINGS = (SILENT, SILENT, HALF, WRONG, HUGE, HTTP)


@dataclass
class Strangers:
    """Those who have come.

    Attributes:
        listeners: how many listeners they have connected to.
        sockets: their ends.
    """

    listeners: int = 0
    sockets: list[socket.socket] = field(default_factory=list)

    def come(self, host: str, port: int) -> None:
        """Connect, one for each saying."""
        self.listeners += 1
        for saying in SAYINGS:
            connected = socket.create_connection((host, port))
            self.sockets.append(connected)
            connected.sendall(saying)


@contextlib.contextmanager
def strangers_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Strangers]:
    """Have strangers connect to every listener that is made, before anybody else can, and stay for ever."""
    came = Strangers()
    make = Listener.__init__

    def made(self: Listener, *arguments: object) -> None:
        make(self, *arguments)  # type: ignore[arg-type]
        came.come(self.address.hosts[0], self.address.port)

    monkeypatch.setattr(Listener, "__init__", made)
    monkeypatch.setattr(listener, "HELLO_S", 3600.0)
    try:
        yield came
    finally:
        for each in came.sockets:
            each.close()
