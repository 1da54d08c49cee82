"""Bytes that travel both ways between two hosts as fast as their link takes them: what a link costs its processors.

    plain_stream.py PEER PORT        on both hosts, each with the other's address; until it is killed

The kernel's work for packets, and for a shaped link's queue, is done by whichever core they interrupt. Training beside
such a stream, which computes nothing, shows how much of a slowdown is that.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

_PIECE = 1 << 20


def send(peer: str, port: int) -> None:
    """Send for ever, once the peer accepts."""
    while True:
        try:
            connection = socket.create_connection((peer, port), timeout=10)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    connection.settimeout(None)
    piece = bytes(_PIECE)
    while True:
        connection.sendall(piece)


def receive(server: socket.socket) -> None:
    """Take what one peer sends, until it ends."""
    connection, _ = server.accept()
    while connection.recv(_PIECE):
        pass


def main() -> None:
    """Read the command line and stream."""
    peer, port = sys.argv[1], int(sys.argv[2])
    with socket.create_server(("", port)) as server:
        threading.Thread(target=send, args=(peer, port), daemon=True).start()
        receive(server)


if __name__ == "__main__":
    main()
