"""What SIGINT and SIGHUP do to a training run (Caffe: signal_handler.cpp), and SIGUSR1 and SIGUSR2 under mpirun.

mpirun answers SIGINT itself, by ending all ranks within a fraction of a second, but hands SIGUSR1 and SIGUSR2 on to
them: SIGUSR1 stops after a snapshot, SIGUSR2 writes a snapshot.

The solver takes the wish up between two iterations, and one rank's wish counts for all. A second signal that
asks for a stop acts as if none of this were here, so that Ctrl-C twice ends a run that hangs.
"""

from __future__ import annotations

import logging
import signal
from types import FrameType
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mgcaffe.solvers.solver import Solver

Effect = Literal["stop", "snapshot", "none"]

_log = logging.getLogger(__name__)


def handle_signals(solver: Solver, sigint: Effect, sighup: Effect) -> None:
    """Lets SIGINT and SIGHUP stop the solver after a snapshot, make it write one, or do nothing."""
    _handle(solver, signal.SIGUSR1, "stop")
    _handle(solver, signal.SIGUSR2, "snapshot")
    _handle(solver, signal.SIGINT, sigint)
    _handle(solver, signal.SIGHUP, sighup)


def _handle(solver: Solver, number: signal.Signals, effect: Effect) -> None:
    if effect == "none":
        signal.signal(number, signal.SIG_IGN)
        return
    before = signal.getsignal(number)

    def request(received: int, frame: FrameType | None) -> None:
        if effect == "snapshot":
            _log.warning("%s: a snapshot follows this iteration", number.name)
            solver.request_snapshot()
            return
        _log.warning("%s: stopping after this iteration", number.name)
        solver.request_stop()
        signal.signal(number, before)

    signal.signal(number, request)
