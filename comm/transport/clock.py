"""Measures how far the ranks' clocks are apart, so that one timeline can show several hosts.

Every rank reads its clock before and after a small all-reduce, which no rank leaves before all have come. So
rank r's arrival is no later than rank 0's departure, and rank 0's arrival no later than r's departure; each round
bounds the offset from both sides, and the narrowest bounds of all rounds hold. On one network that leaves about the
time of one message (Cristian, 1989, bounds it by half a round trip in the same way).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy

from mgcaffe.comm.transport.communicator import Communicator


@dataclass(frozen=True)
class ClockOffset:
    """What to know about a rank's clock.

    Attributes:
        seconds: how far it is ahead of rank 0's.
        uncertainty: by how much that may be wrong.
    """

    seconds: float
    uncertainty: float


def measure_offsets(
    communicator: Communicator, *, rounds: int = 32, clock: Callable[[], float] = time.perf_counter
) -> list[ClockOffset]:
    """Return every rank's offset, by rank, on every rank; a collective call."""
    stamps = []
    message = numpy.zeros(1)
    for _ in range(rounds):
        arrived = clock()
        communicator.allreduce(message)
        stamps.append((arrived, clock()))
    everyones = communicator.allgather(stamps)
    return [offset_between(everyones[0], theirs) for theirs in everyones]


def offset_between(mine: Sequence[tuple[float, float]], theirs: Sequence[tuple[float, float]]) -> ClockOffset:
    """Return the offset of another clock from (arrival, departure) at the same meetings on both."""
    if mine is theirs:
        return ClockOffset(0.0, 0.0)
    least = max(there[0] - here[1] for here, there in zip(mine, theirs, strict=True))
    most = min(there[1] - here[0] for here, there in zip(mine, theirs, strict=True))
    return ClockOffset((least + most) / 2, abs(most - least) / 2)
