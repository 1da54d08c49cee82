"""What a subcommand shares with the guard around it: the communicator, once there is one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mgcaffe.comm.transport.connect import connect
from mgcaffe.comm.transport.environment import detect
from mgcaffe.errors import CommError, UsageError
from mgcaffe.tools.running.command_lines import CommandLine, compare

if TYPE_CHECKING:
    from mgcaffe.comm.transport.communicator import Communicator
    from mgcaffe.tools.running.rank_watch import RankWatch


class Session:
    """One run of the command. `communicator` is None until the subcommand has called `connect`.

    `watch` is what a subcommand of several ranks keeps an eye on itself with, to the very end. `command_line` is what
    the ranks compare as soon as they are connected.
    """

    def __init__(self) -> None:
        self.communicator: Communicator | None = None
        self.command_line = CommandLine("")
        self.watch: RankWatch | None = None

    def connect(self) -> Communicator:
        """Join the other ranks of the job, if the launcher started any.

        Raises:
            CommError: `comm.transport.connect.connect`'s.
            RankDisagreement: the ranks were given different command lines.
            PeerFailure: another rank has ended by an error without joining.
        """
        self.communicator = communicator = connect()
        if communicator.size > 1 and detect().has_mpi:
            from mgcaffe.comm.transport.mpi_library import refuse_finalize

            refuse_finalize()
        compare(communicator, self.command_line)
        return communicator

    def leave(self, *, failed: bool) -> None:
        """Let the other ranks know that this one ends, if it has not joined them; they would wait for it.

        Args:
            failed: whether it ends by an error.

        Raises:
            RankDisagreement: it ends after --help, and others were asked for something else.
            PeerFailure: the same, and another rank ends by an error.
        """
        if self.communicator is not None:
            return
        try:
            if detect().size == 1:
                return
            communicator = connect()
        except CommError:
            # There is nothing to join them by; the launcher ends them once this rank has failed.
            return
        self.communicator = communicator
        compare(communicator, replace(self.command_line, ends=True, failed=failed))

    def close(self, *, process_ends: bool = False) -> None:
        """End what the subcommand left running; signals get their old meaning only where the process goes on."""
        if self.watch is not None:
            self.watch.close(process_ends=process_ends)

    def refuse_ranks(self, command: str) -> None:
        """Make sure that a subcommand for one process was not started as several.

        Raises:
            UsageError: it was.
        """
        launch = detect()
        if launch.size > 1:
            raise UsageError(
                f"engine {command} runs as one process, but {launch.size} ranks were started",
                hint="start it without mpirun or torchrun",
            )
