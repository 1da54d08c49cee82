"""Finds out, while each rank runs its own batches of a test, whether one of them wants to stop."""

from __future__ import annotations

import time
from collections.abc import Callable

from mgcaffe.solvers.exchange.ranks import Ranks

_EXCHANGE_EVERY_S = 1.0
_MAX_ROUNDS = 1_000_000


class StopPoll:
    """Polls all ranks about once per second, after the same batch on every rank.

    Args:
        ranks: those that test together.
        wants_stop: whether this one wants to stop.
        clock: seconds.
    """

    def __init__(
        self, ranks: Ranks, wants_stop: Callable[[], bool], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._ranks = ranks
        self._wants_stop = wants_stop
        self._clock = clock
        self._rounds = 0
        self._next = 1
        self._polled_at = clock()

    def agrees(self) -> bool:
        """Return whether all ranks stop here; all of them call it, after each round of batches."""
        if self._ranks.size == 1:
            return self._wants_stop()
        self._rounds += 1
        if self._rounds < self._next:
            return False
        elapsed = self._clock() - self._polled_at
        # All ranks get the same sums to the bit, and so ask again after the same batch.
        stops, seconds = self._ranks.sum([float(self._wants_stop()), elapsed]).tolist()
        round_s = max(seconds / self._ranks.size / self._rounds, 1e-9)
        self._next = int(min(max(_EXCHANGE_EVERY_S / round_s, 1.0), _MAX_ROUNDS))
        self._rounds, self._polled_at = 0, self._clock()
        return bool(stops > 0)
