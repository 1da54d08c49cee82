"""Ends the process although threads of the user's layers still run, which Python would wait for without end.

Python joins every thread that is no daemon before it exits. A rank that waits there never leaves MPI, and the other
ranks wait for it in turn. So a watching thread gives such threads a few seconds after the end of the run, names those
that are left, leaves MPI in order, and ends the process with the run's own exit code.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable

from mgcaffe.comm.supervision.standard_streams import flush_quietly, say
from mgcaffe.comm.transport.environment import detect
from mgcaffe.errors import CommError

PATIENCE_S = 3.0
"""How long threads may go on after the end of the run."""


def end_without_threads(
    code: int, *, patience_s: float = PATIENCE_S, leave: Callable[[int], object] = os._exit
) -> threading.Thread:
    """Have the process end in a few seconds, whatever threads still run; to be called last by its main thread.

    Args:
        code: the exit code.
        patience_s: how long threads may go on, in seconds.
        leave: ends the process; another one in tests.

    Returns:
        The watching thread, a daemon.
    """
    watcher = threading.Thread(target=_watch, args=(code, patience_s, leave), name="mgcaffe exit", daemon=True)
    watcher.start()
    return watcher


def _watch(code: int, patience_s: float, leave: Callable[[int], object]) -> None:
    main = threading.main_thread()
    time.sleep(patience_s)
    left = [thread for thread in threading.enumerate() if not thread.daemon and thread is not main]
    if not left:
        return
    for thread in left:
        say(
            f"warning: {_rank()}thread '{thread.name}'{_place(thread)} still runs {patience_s:.0f} s after the end of"
            " the run; the process ends without it (make it a daemon, or join it)"
        )
    if "mpi4py.MPI" in sys.modules:
        from mgcaffe.comm.transport.mpi_library import finalize

        finalize()
    flush_quietly()
    leave(code)


def _rank() -> str:
    try:
        launch = detect()
    except CommError:
        return ""
    return f"rank {launch.rank}: " if launch.size > 1 else ""


def _place(thread: threading.Thread) -> str:
    """Return where the thread is, outside of Python's own threading module."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None and frame.f_code.co_filename == threading.__file__:
        frame = frame.f_back
    return f" (at {frame.f_code.co_filename}:{frame.f_lineno})" if frame is not None else ""
