"""A synchronization server: holds a slice of EASGD's centre, and moves it by the replicas that trainers send.

    c = (1 - a) c + a w        for each slice w of a replica that comes, in the order of coming; c is the answer

Each trainer has one request under way at a time. Answers are sent without waiting, so a slow trainer holds up none.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy

from mgcaffe.comm.replicas.servers import AGREE, EXCHANGE, FETCH, START, TYPE
from mgcaffe.comm.replicas.topology import DONE, FLAGS, SNAPSHOT
from mgcaffe.comm.supervision import status
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.transport.messages import Envelope, Sending


class CentreServer:
    """One server.

    Args:
        communicator: the trainers and, behind them, the synchronization servers; for this alone.
        trainers: how many trainers there are.
        rate: a, above 0 and at most 1.

    Attributes:
        exchanges: how many replicas have moved the centre.
        centre: this server's slice of it; empty before the first trainer has sent it.
    """

    def __init__(self, communicator: Communicator, trainers: int, rate: float) -> None:
        self.exchanges = 0
        self.centre = numpy.empty(0)
        self._communicator = communicator
        self._rate = rate
        self._has_centre = False
        self._answers: list[numpy.ndarray] = []
        self._sendings: list[Sending | None] = [None] * trainers
        self._agreement = _Agreement(trainers)
        self._serving = [status.encode(f"serving rank {rank}") for rank in range(trainers)]

    def step(self, patience_s: float) -> bool:
        """Wait for a request for so many seconds and serve it; return whether there was one."""
        # The other trainers' requests wait until the first one has sent the centre.
        source, tag = (None, None) if self._has_centre else (0, TYPE)
        found = self._communicator.probe(source, tag, patience_s)
        if found is None:
            return False
        status.current().doing(self._serving[found.source])
        if found.tag == TYPE:
            self._begin()
        elif found.tag == AGREE:
            self._agree(found)
        else:
            self._exchange(found)
        return True

    def _begin(self) -> None:
        kind = self._communicator.receive_any(0, TYPE)
        content = self._communicator.receive_any(0, START)
        assert kind is not None and content is not None
        self.centre = content.content.view(numpy.dtype(kind.content.tobytes().decode()))
        self._answers = [numpy.empty_like(self.centre) for _ in self._sendings]
        self._has_centre = True

    def _exchange(self, found: Envelope) -> None:
        """Move the centre by a replica's slice, and answer with the centre."""
        answer = self._answers[found.source]
        self._finish_answer(found.source)
        if found.tag == EXCHANGE:
            self._communicator.receive(answer, found.source, EXCHANGE)
            answer -= self.centre
            answer *= self._rate
            self.centre += answer
            self.exchanges += 1
        else:
            self._communicator.receive(numpy.empty(0, numpy.uint8), found.source, FETCH)
        answer[:] = self.centre
        self._sendings[found.source] = self._communicator.start_send(answer, found.source, found.tag)

    def _agree(self, found: Envelope) -> None:
        facts = numpy.empty(found.bytes // 8)
        self._communicator.receive(facts, found.source, AGREE)
        self._finish_answer(found.source)
        known = self._agreement.exchange(found.source, facts, self._communicator.lost)
        self._sendings[found.source] = self._communicator.start_send(known, found.source, AGREE)

    def _finish_answer(self, trainer: int) -> None:
        """Return once the answer before has been sent; the trainer has it, or it would not ask again."""
        sending = self._sendings[trainer]
        if sending is not None:
            sending.wait()


class _Agreement:
    """What each trainer has said last; of the first `FLAGS` facts, whether it has said so since others asked last."""

    def __init__(self, trainers: int) -> None:
        self._latest: list[numpy.ndarray | None] = [None] * trainers
        self._raised = numpy.zeros((trainers, trainers, FLAGS))

    def exchange(self, trainer: int, facts: numpy.ndarray, lost: Iterable[int]) -> numpy.ndarray:
        """Take the facts of a trainer, and return the sum over all for it; those that are lost count as done."""
        self._latest[trainer] = facts
        numpy.maximum(self._raised[:, trainer], facts[:FLAGS], out=self._raised[:, trainer])
        said = [each for each in self._latest if each is not None]
        total: numpy.ndarray = numpy.sum(said, axis=0)
        self._raised[trainer, list(lost), DONE] = 1
        total[:FLAGS] = self._raised[trainer].sum(axis=0)
        for other, each in enumerate(self._latest):
            self._raised[trainer, other] = 0 if each is None else each[:FLAGS]
        self._raised[trainer, :, SNAPSHOT] = 0  # asked for once, and now this trainer has heard it
        return total
