r"""What signals, and a stop file, ask of a training run (Caffe: signal_handler.cpp).

| signal  | effect                          | who sends it                                                    |
|---------|---------------------------------|-----------------------------------------------------------------|
| SIGINT  | --sigint_effect (stop)          | Ctrl-C; a second one ends the run at once                       |
| SIGHUP  | --sighup_effect (snapshot)      | a terminal that closes                                          |
| SIGTERM | stop                            | `kill`, Slurm at a job's end                                    |
| SIGUSR1 | stop                            | mpirun hands it on to all ranks; Slurm's --signal=USR1@300      |
| SIGUSR2 | snapshot                        | likewise                                                        |
| SIGQUIT | end this process at once        | Ctrl-\ (its Python stacks are shown first)                      |

Stop means: after this iteration (a test is left early), a snapshot, and exit code 75. One rank's request counts for
all, in the same iteration. Under the launcher `engine train -np` ranks get SIGUSR1 and SIGUSR2 from it alone; it logs
which signal the user sent, and the ranks that it asks. SIGTERM comes to one of several ranks from a user, or from
mpirun, which kills it a moment later; so it is logged only once that moment has passed.

A handler merely records the request; the watching thread logs it, since a handler may interrupt the very write that it
would log with.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import signal
import time
from pathlib import Path
from types import FrameType
from typing import Literal, Protocol

from mgcaffe.errors import UsageError

Effect = Literal["stop", "snapshot", "none"]

REQUEUE_SIGNALS = ("SIGUSR1", "SIGTERM")
"""What Slurm sends before a job's time is up."""

MPIRUN_KILLS_AFTER_S = 1.5
"""How long after SIGTERM mpirun has killed a rank for certain, if it was mpirun that sent it."""

_STANDARD_ERROR = 2

_log = logging.getLogger(__name__)


class StopTarget(Protocol):
    """What a stop or a snapshot is requested of: the solver."""

    def request_stop(self) -> None:
        """Stop after this iteration."""

    def request_snapshot(self) -> None:
        """Write a snapshot after this iteration."""


class Requests:
    """Requests of signals and the stop file, kept until there is a solver to pass them to.

    Attributes:
        cause: what requested a stop: a signal's name or the stop file's; empty if nothing did.
    """

    def __init__(self) -> None:
        self.cause = ""
        self._snapshot = False
        self._solver: StopTarget | None = None
        self._unlogged: list[tuple[float, str]] = []
        self._before: dict[signal.Signals, object] = {}
        self._quit_before: object = None

    def stop(self, cause: str, delay_s: float = 0.0) -> None:
        """Request a stop, and log it after so many seconds."""
        self.cause = self.cause or cause
        self._unlogged.append((time.monotonic() + delay_s, f"{cause}: stopping after this iteration"))
        if self._solver is not None:
            self._solver.request_stop()

    def snapshot(self, cause: str) -> None:
        """Request a snapshot, and log it."""
        self._snapshot = True
        self._unlogged.append((time.monotonic(), f"{cause}: a snapshot follows this iteration"))
        if self._solver is not None:
            self._solver.request_snapshot()

    def attach(self, solver: StopTarget) -> None:
        """Pass the solver what was requested so far, and from now on each request at once."""
        self._solver = solver
        if self.cause:
            solver.request_stop()
        if self._snapshot:
            solver.request_snapshot()

    def log_pending(self, *, include_delayed: bool = False) -> None:
        """Log the requests that have not been logged yet, also before their time if `include_delayed`."""
        while self._solver is not None and self._unlogged:
            due, text = self._unlogged[0]
            if due > time.monotonic() and not include_delayed:
                return
            del self._unlogged[0]
            _log.warning("%s", text)

    def listen(self, sigint: Effect, sighup: Effect, *, launched: bool = False, has_peers: bool = False) -> None:
        """Install the signals' handlers, from the main thread.

        Args:
            sigint, sighup: what these two do.
            launched: whether the launcher `engine train -np` translates the signals.
            has_peers: whether mpirun, or another launcher, may send SIGTERM because another rank has failed.
        """
        self._handle(signal.SIGUSR1, "stop", "the launcher asks" if launched else "")
        self._handle(signal.SIGUSR2, "snapshot", "the launcher asks" if launched else "")
        self._handle(signal.SIGTERM, "stop", delay_s=MPIRUN_KILLS_AFTER_S if has_peers else 0.0)
        self._handle(signal.SIGINT, sigint)
        self._handle(signal.SIGHUP, sighup)
        self._handle(signal.SIGXFSZ, "none")  # a file that is too large is an error of the write
        # A shell starts what runs in its background with SIGQUIT ignored.
        self._quit_before = signal.signal(signal.SIGQUIT, signal.SIG_DFL)
        faulthandler.register(signal.SIGQUIT, file=_STANDARD_ERROR, chain=True)

    def end(self) -> None:
        """Ignore these signals from now on: the run is over, and its exit code stands."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Put the handlers back that were installed before."""
        if self._quit_before is not None:
            faulthandler.unregister(signal.SIGQUIT)
            signal.signal(signal.SIGQUIT, self._quit_before)  # type: ignore[arg-type]
            self._quit_before = None
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._before.clear()

    def _handle(self, number: signal.Signals, effect: Effect, cause: str = "", delay_s: float = 0.0) -> None:
        """Give a signal an effect; a stop is logged after a delay, with `cause` in place of the signal's name."""
        self._before[number] = signal.getsignal(number)
        if effect == "none":
            signal.signal(number, signal.SIG_IGN)
            return

        def request(received: int, frame: FrameType | None) -> None:
            if effect == "snapshot":
                self.snapshot(cause or number.name)
            else:
                self.stop(cause or number.name, delay_s)
                if number == signal.SIGINT:
                    # So that Ctrl-C twice ends a run that hangs, also one that was started with SIGINT ignored.
                    signal.signal(number, signal.default_int_handler)

        signal.signal(number, request)


class StopFile:
    """A file whose appearance stops the run; for those who start mpirun themselves, on whatever machine.

    Args:
        path: the file.
        requests: takes the request.

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
        """Request a stop if the file is there, and remove it, so that the next run does not find it."""
        if self._seen or not self._path.exists():
            return
        self._seen = True
        self._requests.stop(f"stop file '{self._path}'")
        with contextlib.suppress(OSError):
            self._path.unlink()
