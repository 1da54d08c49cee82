"""Who averages with whom: all trainers at once, or DS-Sync's groups in turn; servers have `servers.py`."""

from __future__ import annotations

from typing import Protocol

import numpy

from mgcaffe.comm.replicas.groups import group_of, radices
from mgcaffe.comm.transport.communicator import Communicator, Waiting

DONE, STOP, SNAPSHOT, FLAGS = 0, 1, 2, 3
"""The first facts of `Topology.agree`: whether a trainer is done, and asks for the end or a snapshot; their number."""

_PATIENT = Waiting(spin_s=0.0, busy_spin_s=0.0, sleep_s=2e-3, max_sleep_s=10e-3)


class Topology(Protocol):
    """Takes means over trainers, round after round; used by one thread.

    Attributes:
        rank, size: this trainer and how many there are.
        rounds: after how many rounds every trainer has met every other, by way of others or directly.
    """

    rank: int
    size: int
    rounds: int

    @property
    def notices(self) -> Communicator | None:
        """The trainers, for what they exchange beside the rounds; None where `agree` waits for none of them."""

    def begin(self, target: numpy.ndarray) -> None:
        """Take what replicas move towards (`Rule.target`) before the first round; collective."""

    def average(self, buffer: numpy.ndarray, round_number: int) -> int:
        """Replace the buffer by its mean over this round's trainers, and return how many there are; collective."""

    def agree(self, facts: numpy.ndarray) -> numpy.ndarray:
        """Return the sum of the facts (float64) over all trainers; a collective call of all of them."""

    def complete(self, target: numpy.ndarray) -> None:
        """Bring what replicas move towards up to date, once all trainers are done."""

    def close(self) -> None:
        """Give up the communicators."""


class AllTrainers:
    """All trainers in each round, by all-reduce; see `Topology`.

    Args:
        communicator: the trainers; duplicates of it are used.
    """

    rounds = 1

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator.duplicate()
        self.notices = communicator.duplicate(_PATIENT)
        self.rank, self.size = communicator.rank, communicator.size

    def begin(self, target: numpy.ndarray) -> None:
        """Do nothing: it is the same on all trainers."""

    def average(self, buffer: numpy.ndarray, round_number: int) -> int:
        """Average over all."""
        return _average(self._communicator, buffer)

    def agree(self, facts: numpy.ndarray) -> numpy.ndarray:
        """Add up."""
        self._communicator.allreduce(facts)
        return facts

    def complete(self, target: numpy.ndarray) -> None:
        """Do nothing: it is up to date."""

    def close(self) -> None:
        """Close the duplicates."""
        self._communicator.close()
        self.notices.close()


class Groups(AllTrainers):
    """DS-Sync: the trainers are divided into other groups in each round; see `Topology`.

    Args:
        communicator: the trainers; making the groups is a collective call.
        form: one of `groups.FORMS`.

    Raises:
        CommError: a number of trainers that the form is not for.
    """

    def __init__(self, communicator: Communicator, form: str = "factors") -> None:
        sizes = radices(communicator.size, form)
        super().__init__(communicator)
        self.rounds = len(sizes)
        self._groups: list[Communicator] = []
        for number in range(self.rounds):
            group = self._communicator.split(group_of(communicator.rank, number, sizes)[0])
            assert group is not None
            self._groups.append(group)

    def average(self, buffer: numpy.ndarray, round_number: int) -> int:
        """Average over this round's group."""
        return _average(self._groups[round_number % self.rounds], buffer)

    def close(self) -> None:
        """Close the groups as well."""
        for group in self._groups:
            group.close()
        super().close()


def _average(communicator: Communicator, buffer: numpy.ndarray) -> int:
    communicator.allreduce(buffer, "sum")
    buffer /= communicator.size
    return communicator.size
