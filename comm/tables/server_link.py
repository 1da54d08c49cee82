"""What the thread that communicates with servers works with: where rows lie, and messages on their way there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from mgcaffe.comm.tables.assignment import Assignment, RowRange
from mgcaffe.comm.tables.figures import LookUpFigures
from mgcaffe.comm.tables.shared_rows import SharedRows
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.transport.messages import Sending


class ServerLink:
    """A trainer's messages to the servers; used by one thread.

    Args:
        communicator, shapes, assignment, servers, dtype, answers: as for `TableClient`.

    Attributes:
        rank: this one.
        shapes, dtype: as above.
        answers: the communicator on which servers answer.
        held: for each server which rows of which tables it holds.
        own: the rows that lie here, where this rank is one of the servers.
        figures: bytes are counted here.
    """

    def __init__(
        self,
        communicator: Communicator,
        shapes: Sequence[tuple[int, int]],
        assignment: Assignment,
        servers: Sequence[int],
        dtype: numpy.dtype,
        answers: Communicator | None,
    ) -> None:
        self.rank = communicator.rank
        self.figures = LookUpFigures()
        self.own: SharedRows | None = None
        self.answers = communicator if answers is None else answers
        self.shapes = shapes
        self.dtype = numpy.dtype(dtype)
        self.held: dict[int, dict[int, RowRange]] = {server: {} for server in servers}
        for table, ranges in enumerate(assignment):
            for rows in ranges:
                self.held[servers[rows.owner]][table] = rows
        self._communicator = communicator
        self._sendings: list[tuple[Sending, numpy.ndarray]] = []

    @property
    def others(self) -> list[int]:
        """The servers that are other ranks than this one."""
        return [server for server in self.held if server != self.rank]

    @property
    def is_sending(self) -> bool:
        """Whether messages are on their way."""
        return bool(self._sendings)

    def send(self, content: numpy.ndarray, server: int, tag: int) -> None:
        """Send a message without waiting; its content stays as it is until `reclaim` lets it go."""
        self._sendings.append((self._communicator.start_send(content, server, tag), content))
        self.figures.sent += content.nbytes

    def reclaim(self) -> None:
        """Let go of what has been sent."""
        if self._sendings:
            self._sendings = [(sending, content) for sending, content in self._sendings if not sending.is_done()]

    def wait(self) -> None:
        """Return once all messages have been sent."""
        for sending, _ in self._sendings:
            sending.wait()
