"""Messages from one rank to another: what a server that takes requests from anybody needs beside collective calls.

Over MPI a message of `PIECE` bytes or more travels in pieces of that size and a shorter one (which may be empty) that
ends it; MPI keeps the order of what one rank sends another with one tag.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mgcaffe.comm.transport.buffers import host_view
from mgcaffe.errors import CommError

if TYPE_CHECKING:
    import numpy

PIECE = 1 << 30
"""Bytes of a piece; MPI counts them with a C int."""


@dataclass(frozen=True)
class Envelope:
    """A message that has come and waits to be received.

    Attributes:
        source: the rank that sent it.
        tag: its tag.
        bytes: its size; of one that travels in pieces, the first piece's.
    """

    source: int
    tag: int
    bytes: int


@dataclass(frozen=True)
class Message:
    """A message that was received.

    Attributes:
        source: the rank that sent it.
        tag: its tag.
        content: its bytes, as a flat array of numpy.uint8, which belongs to the receiver.
    """

    source: int
    tag: int
    content: numpy.ndarray


class Sending(Protocol):
    """A message on its way; its buffer stays as it is until then."""

    def is_done(self) -> bool:
        """Return whether the buffer may be used again."""

    def wait(self) -> None:
        """Return once the buffer may be used again."""


def pieces(buffer: Any) -> list[numpy.ndarray]:
    """Return the parts of a contiguous buffer (numpy array or CPU tensor) that are sent one by one, as bytes in place.

    Raises:
        CommError: it is not contiguous, or its type has no counterpart in MPI.
    """
    content = host_view(buffer).view("uint8")
    return [content[start : start + PIECE] for start in range(0, content.size + 1, PIECE)]


def check_other(rank: int, size: int, other: int) -> None:
    """Make sure that messages may go between two ranks.

    Raises:
        CommError: `other` is no other rank.
    """
    if not 0 <= other < size or other == rank:
        raise CommError(f"rank {rank} of {size} has no messages to or from rank {other}")
