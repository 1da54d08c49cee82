"""What a subcommand shares with the guard around it: the communicator, once there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mgcaffe.comm.transport.connect import connect
from mgcaffe.comm.transport.environment import detect
from mgcaffe.errors import UsageError

if TYPE_CHECKING:
    from mgcaffe.comm.transport.communicator import Communicator
    from mgcaffe.tools.running.rank_watch import RankWatch


class Session:
    """One run of the command. `communicator` is None until the subcommand has called `connect`.

    `watch` is what a subcommand of several ranks keeps an eye on itself with, to the very end.
    """

    def __init__(self) -> None:
        self.communicator: Communicator | None = None
        self.watch: RankWatch | None = None

    def connect(self) -> Communicator:
        """Joins the other ranks of the job, if the launcher started any."""
        self.communicator = connect()
        return self.communicator

    def close(self) -> None:
        """Ends what the subcommand left running."""
        if self.watch is not None:
            self.watch.close()

    def refuse_ranks(self, command: str) -> None:
        """Makes sure that a subcommand for one process was not started as several.

        Raises:
            UsageError: it was.
        """
        launch = detect()
        if launch.size > 1:
            raise UsageError(
                f"engine {command} runs as one process, but {launch.size} ranks were started",
                hint="start it without mpirun",
            )
