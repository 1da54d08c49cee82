"""A connection to one other rank, over which messages of any size travel both ways (`connections.py`).

A thread reads whatever comes, at once, whoever waits for it: so what one rank sends another needs no call of the other
one to arrive, and two ranks may send each other large messages. What does not fit into the kernel's buffer a second
thread sends on. Both wait inside system calls, without Python's lock, for a whole message.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable

import numpy

HEAD = struct.Struct("<Q8sIi")
"""What goes before a message: its size in bytes, the group of ranks, who sends it (a rank of the group), its tag."""

Deliver = Callable[[bytes, int, int, numpy.ndarray], None]
"""Takes a message: the group, the source, the tag and the content, which is given away."""

# A host that is gone without a word closes no connection: it is asked after 5 s of silence, and given up after 20.
_KEEP_ALIVE = ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))


class OutgoingMessage:
    """A message on its way.

    Attributes:
        done: set once its buffer may be used again.
        is_lost: whether that is because the connection is gone.
    """

    def __init__(self, head: bytes, content: numpy.ndarray) -> None:
        self.done = threading.Event()
        self.is_lost = False
        self._parts = [memoryview(head), content.data] if content.size else [memoryview(head)]

    def send(self, to: socket.socket, flags: int = 0) -> bool:
        """Send as much as one call takes; return whether that was all."""
        sent = to.sendmsg(self._parts, (), flags)
        while self._parts and sent >= len(self._parts[0]):
            sent -= len(self._parts.pop(0))
        if self._parts:
            self._parts[0] = self._parts[0][sent:]
            return False
        self.done.set()
        return True

    def give_up(self) -> None:
        """Drop what is left."""
        self.is_lost = True
        self.done.set()


class PeerConnection:
    """One connection.

    Args:
        connected: the socket; it is given away.
        peer: the other rank, for the threads' names.
    """

    def __init__(self, connected: socket.socket, peer: int) -> None:
        self._socket = connected
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEP_ALIVE:
            self._socket.setsockopt(socket.IPPROTO_TCP, option, value)
        self._peer = peer
        self._changed = threading.Condition()
        self._waiting: deque[OutgoingMessage] = deque()
        self._is_broken = False
        self._reader: threading.Thread | None = None
        self._writer: threading.Thread | None = None

    def start(self, deliver: Deliver, on_lost: Callable[[], None]) -> None:
        """Begin to read.

        Args:
            deliver: takes what comes, on a thread of this connection.
            on_lost: called there once the other end is gone, or this one was closed.
        """
        self._reader = self._start_thread(lambda: self._read_all(deliver, on_lost), "from")

    def send(self, head: bytes, content: numpy.ndarray) -> OutgoingMessage:
        """Send a message behind those before, without waiting; any thread may call it."""
        message = OutgoingMessage(head, content)
        with self._changed:
            if self._is_broken:
                message.give_up()
            elif self._waiting or not self._is_sent_at_once(message):
                self._waiting.append(message)
                self._writer = self._writer or self._start_thread(self._send_all, "to")
                self._changed.notify()
        return message

    def close(self) -> None:
        """Close it, also while its threads wait; harmless when repeated."""
        self._break()
        for thread in (self._reader, self._writer):
            if thread is not None and thread is not threading.current_thread():
                thread.join()
        self._socket.close()

    def _start_thread(self, work: Callable[[], None], direction: str) -> threading.Thread:
        thread = threading.Thread(target=work, name=f"mgcaffe messages {direction} rank {self._peer}", daemon=True)
        thread.start()
        return thread

    def _is_sent_at_once(self, message: OutgoingMessage) -> bool:
        try:
            return message.send(self._socket, socket.MSG_DONTWAIT)
        except OSError:
            return False  # the kernel's buffer is full; or the connection is gone, which the reader finds

    def abandon(self) -> None:
        """Close the descriptor alone, in a forked process whose parent goes on with the connection."""
        self._socket.close()

    def _send_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_broken)
                if self._is_broken:
                    return
                message = self._waiting[0]
            try:
                while not message.send(self._socket):
                    continue
            except OSError:
                self._break()
                return
            with self._changed:
                if self._waiting:
                    self._waiting.popleft()

    def _read_all(self, deliver: Deliver, on_lost: Callable[[], None]) -> None:
        head = memoryview(bytearray(HEAD.size))
        try:
            while self._fill(head):
                size, group, source, tag = HEAD.unpack(head)
                content = numpy.empty(size, numpy.uint8)
                if not self._fill(content.data):
                    break
                deliver(group, source, tag, content)
        finally:  # also where there is no memory for a message: nobody is to wait for it
            self._break()
            on_lost()

    def _fill(self, view: memoryview) -> bool:
        """Read until a buffer is full; False: the connection is gone."""
        at = 0
        while at < len(view):
            try:
                count = self._socket.recv_into(view[at:], 0, socket.MSG_WAITALL)
            except OSError:
                return False
            if count == 0:
                return False
            at += count
        return True

    def _break(self) -> None:
        """Give up what waits to be sent, and end both threads."""
        with self._changed:
            if self._is_broken:
                return
            self._is_broken = True
            for message in self._waiting:
                message.give_up()
            self._waiting.clear()
            self._changed.notify_all()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other end was first
