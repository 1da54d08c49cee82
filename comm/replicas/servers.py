"""The topology in which trainers meet at synchronization servers: no trainer waits for another one (sequential EASGD).

The servers hold the centre, each a slice of it. A trainer sends its replica slice by slice and gets the centre back,
which its replica has moved by then (`centre_server.py`); the trainer then moves towards the centre by the rule
`SequentialElasticAveraging`.
"""

from __future__ import annotations

import time
from itertools import pairwise

import numpy

from mgcaffe.comm.replicas.topology import DONE, SNAPSHOT
from mgcaffe.comm.supervision import status
from mgcaffe.comm.transport.communicator import Communicator

TYPE, START, EXCHANGE, AGREE, FETCH = range(1, 6)
"""The tags of what a trainer sends: the centre's type and the centre itself at the start, its replica, what the
trainers have to know, and a request for the centre."""

_POLL_S = 0.05


def slices(size: int, servers: int) -> list[slice]:
    """Return the part of a flat array of `size` elements that each server holds; they differ by at most one element."""
    bounds = [size * number // servers for number in range(servers + 1)]
    return [slice(first, last) for first, last in pairwise(bounds)]


class Servers:
    """A trainer's way to the synchronization servers; see `Topology`.

    Args:
        communicator: the trainers and, behind them, the synchronization servers; for this alone.
        trainers: how many trainers there are.
    """

    rounds = 1
    notices = None

    def __init__(self, communicator: Communicator, trainers: int) -> None:
        self.rank = communicator.rank
        self.size = trainers
        self._communicator = communicator
        self._servers = range(trainers, communicator.size)

    def begin(self, target: numpy.ndarray) -> None:
        """Give the servers the centre to begin with; the first trainer does."""
        if self.rank != 0:
            return
        kind = numpy.frombuffer(target.dtype.str.encode(), numpy.uint8)
        for server, part in self._parts(target):
            self._communicator.send(kind, server, TYPE)
            self._communicator.send(part, server, START)

    def average(self, buffer: numpy.ndarray, round_number: int) -> int:
        """Let the replica in the buffer move the centre, and replace it by the centre."""
        sent = [self._communicator.start_send(part, server, EXCHANGE) for server, part in self._parts(buffer)]
        for sending, (server, part) in zip(sent, self._parts(buffer), strict=True):
            sending.wait()
            self._communicator.receive(part, server, EXCHANGE)
        return self.size

    def agree(self, facts: numpy.ndarray) -> numpy.ndarray:
        """Add up what each trainer has said last; one that is done returns when all are.

        A request for a snapshot goes to each trainer once.
        """
        said, snapshots = facts.copy(), 0.0
        while True:
            known = self._ask(said)
            snapshots += known[SNAPSHOT]
            if not facts[DONE] or known[DONE] == self.size:
                known[SNAPSHOT] = snapshots
                return known
            said[SNAPSHOT] = 0.0
            status.doing("waiting for the other trainers, whose replicas are still trained")
            time.sleep(_POLL_S)

    def complete(self, target: numpy.ndarray) -> None:
        """Replace the target by the centre as it is."""
        for server, part in self._parts(target):
            self._communicator.send(numpy.empty(0, numpy.uint8), server, FETCH)
            self._communicator.receive(part, server, FETCH)

    def close(self) -> None:
        """Close the communicator."""
        self._communicator.close()

    def _parts(self, buffer: numpy.ndarray) -> list[tuple[int, numpy.ndarray]]:
        parts = slices(buffer.size, len(self._servers))
        return [(server, buffer[part]) for server, part in zip(self._servers, parts, strict=True)]

    def _ask(self, facts: numpy.ndarray) -> numpy.ndarray:
        self._communicator.send(facts, self._servers[0], AGREE)
        known = numpy.empty_like(facts)
        self._communicator.receive(known, self._servers[0], AGREE)
        return known
