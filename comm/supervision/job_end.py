"""The end of a rank that its own watch has decided on: why, when, and who of the host's ranks says so."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NoReturn

from mgcaffe.comm.supervision.peers import Peers
from mgcaffe.comm.supervision.processes import is_alive
from mgcaffe.comm.supervision.record_folders import launcher_pid
from mgcaffe.comm.supervision.status import Status
from mgcaffe.comm.supervision.verdict import END_MESSAGE
from mgcaffe.errors import EXIT_PEER_FAILED


class JobEnd:
    """Prints why the job ends, on one rank of the host, and ends this process once its time has come.

    Args:
        status: this rank's record.
        peers: the ranks of this host.
        print_message: prints a line, or several, for the user.
        leave: ends the process.
        patience_s: how long to wait to be ended by mpirun.

    Attributes:
        launcher: the process of `engine train -np`, if this rank runs under it on its host.
    """

    def __init__(
        self,
        status: Status,
        peers: Peers,
        print_message: Callable[[str], None],
        leave: Callable[[int], NoReturn],
        patience_s: float,
    ) -> None:
        self.launcher = launcher_pid()
        self.print_message = print_message
        self._status = status
        self._peers = peers
        self._leave = leave
        self._patience_s = patience_s
        self._leave_at: float | None = None
        self._code = EXIT_PEER_FAILED

    @property
    def is_near(self) -> bool:
        """Return whether it has been decided that this process ends."""
        return self._leave_at is not None

    def schedule(self, code: int, now: float, *, at_once: bool = False) -> None:
        """End this process with a code, unless mpirun does before the patience is over."""
        self._code = code
        self._leave_at = now + (0.0 if at_once else self._patience_s)

    def is_due(self, now: float) -> bool:
        """Return whether the scheduled time has come."""
        return self._leave_at is not None and now > self._leave_at

    def leave(self) -> None:
        """End this process with the scheduled code."""
        self._leave(self._code)

    def print_last(self, text: str, code: int) -> None:
        """Print why the job ends; the launcher, where it can read it, prints it at the very end."""
        if self.launcher is not None and is_alive(self.launcher) and self._status.path is not None:
            with contextlib.suppress(OSError):
                (self._status.path.parent / END_MESSAGE).write_text(f"{code}\n{text}", encoding="utf-8")
                return
        self.print_message(f"error: {text}")

    def is_lowest(self) -> bool:
        """Return whether this is the lowest rank of this host that runs and is not stopped."""
        stopped = self._peers.stopped()
        able = [rank for rank in self._peers.running() if rank not in stopped]
        return not able or self._status.rank <= able[0]
