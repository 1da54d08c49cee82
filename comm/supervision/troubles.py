"""What is known of a rank from what it says of itself, and when others can no longer count on it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field

from mgcaffe.comm.supervision.processes import process_state
from mgcaffe.comm.supervision.verdict import UNEXPLAINED
from mgcaffe.errors.checked_json import Json

ENDED, GONE, SILENT, RAISED, LEFT, FOLLOWED = range(6)
"""Kinds of trouble, the likeliest to be the cause of others first."""

GONE_S = 1.0
"""For so long after the end of a process what it has sent may still be on its way."""
LEFT_S = 5.0
"""The same where it has ended in order."""
FOLLOWED_S = 2.0
"""For so long after a rank has ended because of another one, that other one is looked for."""
RAISED_S = 5.0
"""For so long a rank may do something else after an exception, such as try again with a smaller batch."""


@dataclass
class RankRecord:
    """What a rank says of itself.

    Attributes:
        rank, size, host, pid: who it is.
        rounds: how often it has begun to communicate with all others.
        waits: whether it does now.
        raised: the exception that ended its last forward or backward pass, and where; empty: none.
        ended: the exception by which its process ends.
        follows: whether that one comes of another rank's failure.
        left: whether its process ends without an exception.
    """

    rank: int
    size: int
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    rounds: int = 0
    waits: bool = False
    raised: str = ""
    ended: str = ""
    follows: bool = False
    left: bool = False

    @classmethod
    def of_json(cls, record: Json) -> RankRecord:
        """Return a record that came as JSON.

        Raises:
            DataError: it is none.
        """
        return cls(
            rank=record["rank"].integer(),
            size=record["size"].integer(),
            host=record["host"].text(),
            pid=record["pid"].integer(),
            rounds=record["rounds"].integer(),
            waits=record["waits"].flag(),
            raised=record["raised"].text(),
            ended=record["ended"].text(),
            follows=record["follows"].flag(),
            left=record["left"].flag(),
        )

    def name(self) -> str:
        """Return `rank 1 of 3 on node7 (process 4711)`."""
        return f"rank {self.rank} of {self.size} on {self.host} (process {self.pid})"


@dataclass(frozen=True)
class Trouble:
    """Why nobody should wait for a rank.

    Attributes:
        kind: one of the kinds above.
        rank: the rank.
        text: what is said of it.
    """

    kind: int
    rank: int
    text: str

    @classmethod
    def of_json(cls, trouble: Json) -> Trouble:
        """Return what came as JSON.

        Raises:
            DataError: it is none.
        """
        return cls(trouble["kind"].integer(), trouble["rank"].integer(), trouble["text"].text())


class Seen:
    """What was seen of a rank, in seconds of this process's clock.

    Args:
        record: its record.
        now: when that came.

    Attributes:
        record: the last one.
        heard_at: when that came.
        closed_at: when the connection was closed; None: it is open.
    """

    def __init__(self, record: RankRecord, now: float) -> None:
        self.record = record
        self.heard_at = now
        self.closed_at: float | None = None
        self._raised_at = now

    def hear(self, record: RankRecord, now: float) -> None:
        """Take a new record."""
        if (record.raised, record.ended) != (self.record.raised, self.record.ended):
            self._raised_at = now
        self.record = record
        self.heard_at = now

    def close(self, now: float) -> None:
        """Take note that the connection was closed."""
        if self.closed_at is None:
            self.closed_at = now

    def trouble(self, now: float, timeout_s: float) -> Trouble | None:
        """Return why nobody should wait for the rank; None: it will come, as far as is known.

        Args:
            now: the time.
            timeout_s: after how many seconds of silence it counts as dead; 0: never.
        """
        record = self.record
        if record.ended:
            is_due = not record.follows or now - self._raised_at > FOLLOWED_S
            kind = FOLLOWED if record.follows else ENDED
            return Trouble(kind, record.rank, f"rank {record.rank} ended with {record.ended}") if is_due else None
        if self.closed_at is not None:
            if record.left:
                left = now - self.closed_at > LEFT_S
                return Trouble(LEFT, record.rank, f"{record.name()} has ended") if left else None
            gone = now - self.closed_at > GONE_S
            return Trouble(GONE, record.rank, f"{record.name()} {UNEXPLAINED}") if gone else None
        silent_s = now - self.heard_at
        if timeout_s and silent_s > timeout_s:
            return Trouble(SILENT, record.rank, f"{record.name()} {self._silence(silent_s)}")
        raised_s = now - self._raised_at
        if record.raised and not record.waits and raised_s > RAISED_S:
            after = f"{record.name()} raised {record.raised}, and has computed nothing for {raised_s:.0f} s since"
            return Trouble(RAISED, record.rank, after)
        return None

    def _silence(self, seconds: float) -> str:
        if self.record.host == socket.gethostname() and process_state(self.record.pid) in ("T", "t"):
            return "is stopped by a signal (SIGSTOP or the like)"
        return (
            f"has not answered for {seconds:.0f} s: it is stopped, its host cannot be reached, or it is in a call that"
            " keeps Python's other threads from running (peer_timeout)"
        )


def behind(records: Iterable[RankRecord]) -> list[RankRecord]:
    """Return the ranks that others wait for: those that have communicated less often."""
    listed = list(records)
    furthest = max((record.rounds for record in listed if record.waits), default=0)
    return [record for record in listed if record.rounds < furthest]


def first_waiting(records: Iterable[RankRecord]) -> int:
    """Return the lowest rank that waits, -1 if none does: the one that says for whom."""
    return min((record.rank for record in records if record.waits), default=-1)
