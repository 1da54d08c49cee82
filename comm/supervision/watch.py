"""A thread of each rank that ends the job when a peer has died, the launcher has ended, or there is no progress.

A rank that exits without an error message leaves the others waiting in a collective call. mpirun ends them within half
a second and says which process it was; what that rank was doing is known from its record (`status`), which the
lowest surviving rank of its host prints, or the launcher `engine train -np` where it runs on that host. Where
nothing ends this rank (mpirun was killed, srun without --kill-on-bad-exit), the thread does.

The thread of `JobWatch` polls three small watches: `PeerWatch`, `ParentWatch` and `StallWatch`. They print, and end
this process, through the `JobEnd` that they share (`job_end.py`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from mgcaffe.comm.supervision.job_end import JobEnd
from mgcaffe.comm.supervision.peers import Peers
from mgcaffe.comm.supervision.processes import is_alive
from mgcaffe.comm.supervision.record_folders import launcher_is_elsewhere
from mgcaffe.comm.supervision.status import RUNNING, Place, Status
from mgcaffe.comm.supervision.verdict import attached_record, lost_block, stall_block
from mgcaffe.errors import EXIT_PEER_FAILED, EXIT_STALLED

TICK_S = 0.5
PATIENCE_S = 4.0
"""How long a rank waits for the launcher to end it once the job is lost."""

_SUSPENDED_S = 5 * TICK_S
_MAX_RESCUE_S = 600.0


class PeerWatch:
    """Ends the job when another rank of this host has died without finishing its record, unless that is tolerated.

    Args:
        status: this rank's record.
        end: ends this process.

    Attributes:
        lost: the last record of the first one.
    """

    def __init__(self, status: Status, end: JobEnd) -> None:
        self.lost: Place | None = None
        self._status = status
        self._end = end

    def check(self, ended: Sequence[Place], now: float) -> None:
        """Look at the last records of the ranks that have ended since the last time."""
        for place in ended:
            # One that was sent SIGTERM is a consequence, not the cause.
            if place.state != RUNNING or place.terminated or self.lost is not None or self._end.is_near:
                continue
            if place.rank in self._status.tolerated:
                continue
            self.lost = place
            if self._end.launcher is None and self._end.is_lowest():
                record = attached_record(place) if launcher_is_elsewhere() else ""
                self._end.print_message(f"error: {lost_block(place)}{record}")
            self._end.schedule(EXIT_PEER_FAILED, now)


class ParentWatch:
    """Ends the job when the launcher, or the process that started this rank, has ended.

    Args:
        status: this rank's record.
        end: ends this process.
        parent: the process that started this rank; None: only the launcher counts.
    """

    def __init__(self, status: Status, end: JobEnd, parent: int | None) -> None:
        self._status = status
        self._end = end
        self._pids = [pid for pid in (parent, end.launcher) if pid is not None]

    def check(self) -> None:
        """Look whether these processes live."""
        dead = [pid for pid in self._pids if not is_alive(pid)]
        if not dead or self._end.is_near:
            return
        what = "the launcher" if dead[0] == self._end.launcher else "the process that started this rank"
        if self._end.is_lowest():
            place = self._status.read().describe()
            self._end.print_last(f"{what} (process {dead[0]}) is gone, so the job ends: {place}", EXIT_PEER_FAILED)
        self._status.terminated()
        self._end.leave()


class StallWatch:
    """Warns, and then ends the job, when this rank's own record has not changed for too long.

    The same where a thread beside training (`Status.background_beat`) does not get on, while training does.

    Time in which this process itself was stopped does not count (`restart`).

    Args:
        status: this rank's record.
        peers: the ranks of this host, for the message.
        end: ends this process.
        timeout_s: after how many seconds without progress the job ends, and after half of which it warns; 0: never.
    """

    def __init__(self, status: Status, peers: Peers, end: JobEnd, timeout_s: float) -> None:
        self._status = status
        self._peers = peers
        self._end = end
        self._timeout_s = timeout_s
        self._has_warned = False
        self._beat, self._background_beat = status.beat, status.background_beat
        self._changed_at = self._background_changed_at = time.monotonic()

    def restart(self, now: float) -> None:
        """Count the seconds without progress from now."""
        self._changed_at = self._background_changed_at = now

    def idle_s(self, now: float) -> float:
        """Return the seconds since the last progress."""
        return now - self._changed_at

    def check(self, now: float) -> None:
        """Look whether there was progress."""
        if self._status.beat != self._beat:
            self._beat, self._changed_at = self._status.beat, now
        background = self._status.background_beat
        if background is None or background != self._background_beat:
            self._background_beat, self._background_changed_at = background, now
        background_s = now - self._background_changed_at
        idle_s = max(self.idle_s(now), background_s)
        if idle_s < self._timeout_s / 2:
            self._has_warned = False
            return
        if not self._timeout_s or self._end.is_near:
            return
        ends = idle_s >= self._timeout_s
        if self._has_warned and not ends:
            return
        self._has_warned = True
        speaks = self._end.is_lowest()
        if speaks:
            what = "progress" if self.idle_s(now) >= background_s else "synchronization of replicas"
            places, stopped = self._peers.places(), self._peers.stopped()
            block = stall_block(places, stopped, idle_s, self._status.size, ends, what)
            if ends:
                self._end.print_last(block, EXIT_STALLED)
            else:
                self._end.print_message(f"warning: {block}")
        if ends:
            # The others wait for mpirun to end them, and leave by themselves if it does not.
            self._end.schedule(EXIT_STALLED, now, at_once=speaks)


class JobWatch:
    """The thread that polls the watches, and notes signals while the main thread computes.

    Args:
        status: this rank's record.
        print_message: prints a line, or several, for the user.
        stall_timeout_s: after how many seconds without progress the job ends; 0: never.
        parent: the process whose end is the end of the job; None: there is none.
        survives: whether MPI reports a peer's death to the ranks (ULFM), so that they may end in order.
        tasks: called about twice a second, on this thread.
        leave: ends the process; another one in tests.
        tick_s, patience_s: how often to look, and how long to wait to be ended.
    """

    def __init__(
        self,
        status: Status,
        print_message: Callable[[str], None],
        *,
        stall_timeout_s: float = 0.0,
        parent: int | None = None,
        survives: bool = False,
        tasks: Sequence[Callable[[], None]] = (),
        leave: Callable[[int], NoReturn] = os._exit,
        tick_s: float = TICK_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._status = status
        self._survives = survives
        self._max_rescue_s = stall_timeout_s or _MAX_RESCUE_S
        self._tasks = list(tasks)
        self._tick_s = tick_s
        self._patience_s = patience_s
        self._peers = Peers(status.path.parent if status.path else None, status.size)
        self._end = JobEnd(status, self._peers, print_message, leave, patience_s)
        self._peer_watch = PeerWatch(status, self._end)
        self._parent_watch = ParentWatch(status, self._end, parent)
        self._stall_watch = StallWatch(status, self._peers, self._end, stall_timeout_s)
        self._closing = threading.Event()
        self._outlives_at: float | None = None
        self._wake_before = -1
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._peers.add_descriptor(self._wake_read)
        self._thread = threading.Thread(target=self._run, name="mgcaffe watch", daemon=True)

    def start(self) -> JobWatch:
        """Start the thread; from the main thread, signals are noted even while it computes."""
        if threading.current_thread() is threading.main_thread():
            self._wake_before = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._thread.start()
        return self

    def add_task(self, task: Callable[[], None]) -> None:
        """Call `task` about twice a second, on the watching thread."""
        self._tasks.append(task)

    def close(self) -> None:
        """End the thread; harmless when repeated."""
        if self._closing.is_set():
            return
        self._closing.set()
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self._wake_before)
        with contextlib.suppress(BlockingIOError):
            os.write(self._wake_write, b"\0")
        self._thread.join()
        self._peers.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _run(self) -> None:
        looked_at = time.monotonic()
        while not self._closing.is_set():
            ended = self._peers.wait(self._tick_s)
            now = time.monotonic()
            if now - looked_at > self._tick_s + _SUSPENDED_S:
                self._stall_watch.restart(now)  # this process was stopped
            looked_at = now
            self._read_signals(now)
            if self._closing.is_set():
                return
            self._peer_watch.check(ended, now)
            self._parent_watch.check()
            self._stall_watch.check(now)
            if self._end.is_due(now) and not self._is_rescuing(now):
                self._end.leave()
            for task in self._tasks:
                task()

    def _read_signals(self, now: float) -> None:
        with contextlib.suppress(BlockingIOError):
            if signal.SIGTERM in os.read(self._wake_read, 4096):
                self._status.terminated()
                self._outlives_at = now + self._patience_s
        if self._outlives_at is not None and now > self._outlives_at and not self._end.is_near:
            # What ends a job with SIGTERM kills soon after; so this one was meant for this rank alone.
            self._outlives_at = None
            self._status.terminated(False)

    def _is_rescuing(self, now: float) -> bool:
        """Return whether this rank writes the rescue snapshot, or waits for the one that does."""
        return (
            self._survives
            and self._status.read().doing.startswith("rescuing")
            and self._stall_watch.idle_s(now) < self._max_rescue_s
        )
