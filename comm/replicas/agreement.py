"""What trainers with replicas of their own tell each other: who is done, what is asked for, how far each has come.

They exchange flat arrays of facts, which are added up over all trainers: the flags of `topology.py`, then iterations,
completed rounds and distances, in each case one number a trainer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy

from mgcaffe.comm.replicas.figures import SyncFigures
from mgcaffe.comm.replicas.topology import DONE, FLAGS, SNAPSHOT, STOP


@dataclass(frozen=True)
class Known:
    """What is known of each trainer, as of the latest exchange: iterations, completed rounds and distance."""

    trainers: tuple[int, ...] = ()
    rounds: tuple[int, ...] = ()
    distances: tuple[float, ...] = ()


class Agreement:
    """One trainer's part in what all of them agree on; requests come from the training thread.

    Args:
        rank: the trainer's number.
        size: how many there are.

    Attributes:
        known: what is known of each trainer.
        exchanges: how many there were.
        stop_requested: whether a trainer has asked for the end of the training, as of the latest exchange.
        asks_for_stop: called before each exchange: whether this trainer asks for it, as `request_stop` does for good.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.known = Known()
        self.exchanges = 0
        self.stop_requested = False
        self.asks_for_stop: Callable[[], bool] = lambda: False
        self._rank = rank
        self._size = size
        self._wants_stop = self._wants_snapshot = self._own_request = False
        self._snapshot_asked_for = False

    def request_stop(self) -> None:
        """Ask all trainers to end their training."""
        self._wants_stop = True

    def request_snapshot(self) -> None:
        """Ask the trainer that takes snapshots for one."""
        self._wants_snapshot = True

    def take_snapshot_request(self) -> bool:
        """Return whether another trainer has asked for a snapshot since this was called last."""
        asked, self._snapshot_asked_for = self._snapshot_asked_for, False
        return asked

    def facts(self, figures: SyncFigures, iterations: int, *, is_done: bool, with_requests: bool) -> numpy.ndarray:
        """Return what the others have to know of this trainer; a request for a snapshot is given once.

        Args:
            figures: of its synchronization.
            iterations: that it has trained.
            is_done: whether it has trained enough.
            with_requests: whether this exchange passes requests for snapshots on.
        """
        size, rank = self._size, self._rank
        facts = numpy.zeros(FLAGS + 3 * size)
        facts[DONE] = is_done
        facts[STOP] = self._wants_stop or self.asks_for_stop()
        if with_requests:
            self._own_request, self._wants_snapshot = self._wants_snapshot, False
            facts[SNAPSHOT] = self._own_request
        facts[FLAGS + rank] = iterations
        facts[FLAGS + size + rank] = figures.synchronizations
        facts[FLAGS + 2 * size + rank] = figures.distance
        return facts

    def take(self, facts: numpy.ndarray) -> bool:
        """Take the sums over all trainers; return whether all are done."""
        size = self._size
        self.exchanges += 1
        self.stop_requested = self.stop_requested or bool(facts[STOP] > 0)
        if facts[SNAPSHOT] > self._own_request:
            self._snapshot_asked_for = True
        self.known = Known(
            trainers=tuple(map(int, facts[FLAGS : FLAGS + size])),
            rounds=tuple(map(int, facts[FLAGS + size : FLAGS + 2 * size])),
            distances=tuple(facts[FLAGS + 2 * size :].tolist()),
        )
        return bool(facts[DONE] == size)
