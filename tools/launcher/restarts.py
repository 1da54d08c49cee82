"""When the launcher starts a job again, after how long, and with which words.

A rank that died, a stall and a failure without a known cause may pass; a prototxt, a flag, a full disk, ranks that
disagree, and a loss that is not finite would be the same again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from mgcaffe.errors import (
    EXIT_BAD_INPUT,
    EXIT_CANNOT_WRITE,
    EXIT_NOT_FINITE,
    EXIT_OK,
    EXIT_RANKS_DISAGREE,
    EXIT_STOPPED_BY_SIGNAL,
    EXIT_USAGE,
)

_ENDED_WELL = (EXIT_OK, EXIT_STOPPED_BY_SIGNAL)
_WOULD_REPEAT = (EXIT_USAGE, EXIT_BAD_INPUT, EXIT_NOT_FINITE, EXIT_CANNOT_WRITE, EXIT_RANKS_DISAGREE)
_MAX_DELAY_S = 60.0


class Restarts:
    """Counts the restarts of one launcher.

    Args:
        limit: how many there may be.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._done = 0
        self._since, self._began = time.time(), time.monotonic()

    def delay_after(self, code: int) -> float | None:
        """Return the seconds to wait before the next start: 1, 2, 4 and so on up to 60; None: there is none."""
        if code in _ENDED_WELL or code in _WOULD_REPEAT or self._done >= self._limit:
            return None
        self._done += 1
        return float(min(_MAX_DELAY_S, 2.0 ** (self._done - 1)))

    def announce(self, code: int, delay: float) -> str:
        """Return what to tell the user about the restart that `delay_after` has granted."""
        return (
            f"Exit code {code}: starting again in {delay:g} s, from the newest valid snapshot of this run"
            f" (restart {self._done} of {self._limit})"
        )

    def why_not(self, code: int) -> str:
        """Why there is no (further) restart although some were asked for; empty where nothing needs to be said."""
        if not self._limit or code in _ENDED_WELL:
            return ""
        if code in _WOULD_REPEAT:
            return f"Exit code {code} would come again, so the run is not started again"
        return f"Exit code {code} after {self._done} of {self._limit} restarts: giving up"

    def words(self, words: Sequence[str]) -> list[str]:
        """Return the ranks' words for a start after the first, with when the first was, by the clock as it is now.

        A clock that was set back meanwhile must not make this run's snapshots seem older than the run; those that an
        earlier run took within that time before this one's start then seem to be this run's.
        """
        since = min(self._since, time.time() - (time.monotonic() - self._began))
        return [f"--restarted={since:.3f}", *words]
