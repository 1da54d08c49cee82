"""What signals, and a stop file, ask of a training run (Caffe: signal_handler.cpp).

| signal  | effect                          | who sends it                                                    |
|---------|---------------------------------|-----------------------------------------------------------------|
| SIGINT  | --sigint_effect (stop)          | Ctrl-C; a second one ends the run at once                       |
| SIGHUP  | --sighup_effect (snapshot)      | a terminal that closes                                          |
| SIGTERM | stop                            | `kill`, Slurm at a job's end                                    |
| SIGUSR1 | stop                            | mpirun hands it on to all ranks; Slurm's --signal=USR1@300      |
| SIGUSR2 | snapshot                        | likewise                                                        |

Stop means: after this iteration (a test is left early), a snapshot, and exit code 75. One rank's wish counts for all,
in the same iteration. Under the launcher `engine train -np` ranks get SIGUSR1 and SIGUSR2 from it alone, and SIGTERM
only when the job is being ended; the launcher says which signal the user sent, and the ranks that it asks.

A handler merely notes the wish; it is told from the watching thread, since a handler may interrupt the very write
it would print with.
"""

from __future__ import annotations

import contextlib
import logging
import signal
from pathlib import Path
from types import FrameType
from typing import Literal, Protocol

from mgcaffe.errors import UsageError

Effect = Literal["stop", "snapshot", "none"]

REQUEUE_SIGNALS = ("SIGUSR1", "SIGTERM")
"""What Slurm sends before a job's time is up."""

_log = logging.getLogger(__name__)


class Wishes(Protocol):
    """Who takes the wishes up: the solver."""

    def request_stop(self) -> None:
        """Asks for the end after this iteration."""

    def request_snapshot(self) -> None:
        """Asks for a snapshot after this iteration."""


class Requests:
    """Wishes that came from outside, kept until there is a solver to take them up.

    Attributes:
        cause: what asked for a stop: a signal's name or the stop file's; empty if nothing did.
    """

    def __init__(self) -> None:
        self.cause = ""
        self._snapshot = False
        self._solver: Wishes | None = None
        self._untold: list[str] = []
        self._before: dict[signal.Signals, object] = {}

    def stop(self, cause: str) -> None:
        """Asks for a stop."""
        self.cause = self.cause or cause
        self._untold.append(f"{cause}: stopping after this iteration")
        if self._solver is not None:
            self._solver.request_stop()

    def snapshot(self, cause: str) -> None:
        """Asks for a snapshot."""
        self._snapshot = True
        self._untold.append(f"{cause}: a snapshot follows this iteration")
        if self._solver is not None:
            self._solver.request_snapshot()

    def attach(self, solver: Wishes) -> None:
        """Hands the solver what was asked for so far, and from now on at once."""
        self._solver = solver
        if self.cause:
            solver.request_stop()
        if self._snapshot:
            solver.request_snapshot()

    def tell(self) -> None:
        """Logs what has been asked for and not been told yet."""
        while self._solver is not None and self._untold:
            _log.warning("%s", self._untold.pop(0))

    def listen(self, sigint: Effect, sighup: Effect, launched: bool = False) -> None:
        """Takes the signals over, from the main thread.

        Args:
            sigint, sighup: what these two do.
            launched: whether the launcher `engine train -np` translates the signals.
        """
        self._handle(signal.SIGUSR1, "stop", "the launcher asks" if launched else "")
        self._handle(signal.SIGUSR2, "snapshot", "the launcher asks" if launched else "")
        self._handle(signal.SIGTERM, "note" if launched else "stop")
        self._handle(signal.SIGINT, sigint)
        self._handle(signal.SIGHUP, sighup)

    def restore(self) -> None:
        """Gives the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before.clear()

    def _handle(self, number: signal.Signals, effect: Effect | Literal["note"], cause: str = "") -> None:
        """Gives a signal an effect; `cause` is what the user is told in place of its name."""
        before = signal.getsignal(number)
        self._before[number] = before
        if effect == "none":
            signal.signal(number, signal.SIG_IGN)
            return

        def request(received: int, frame: FrameType | None) -> None:
            if effect == "snapshot":
                self.snapshot(cause or number.name)
            elif effect == "stop":
                self.stop(cause or number.name)
                if number == signal.SIGINT:
                    # So that Ctrl-C twice ends a run that hangs.
                    signal.signal(number, before)

        signal.signal(number, request)


class StopFile:
    """A file whose appearance stops the run; for those who start mpirun themselves, on whatever machine.

    Args:
        path: the file.
        requests: who takes the wish up.

    Raises:
        UsageError: it is there already.
    """

    def __init__(self, path: Path, requests: Requests) -> None:
        self._path = path
        self._requests = requests
        self._seen = False
        if path.exists():
            raise UsageError(
                f"the stop file '{path}' exists already, so the run would stop at once",
                hint="remove it, or name another one with --stop_file",
            )

    def look(self) -> None:
        """Asks for a stop if the file is there, and removes it, so that the next run does not find it."""
        if self._seen or not self._path.exists():
            return
        self._seen = True
        self._requests.stop(f"stop file '{self._path}'")
        with contextlib.suppress(OSError):
            self._path.unlink()
