"""A thread of each rank that ends the job when a peer has died, the launcher is gone, or nothing moves any more.

A rank that dies without a word leaves the others waiting in a collective call. mpirun ends them within half a
second and says which process it was; what that rank was doing is known from its record (`status`), which the
lowest surviving rank of its host prints, or the launcher `engine train -np` where it runs on that host. Where
nobody ends this rank (mpirun was killed, srun without --kill-on-bad-exit), the thread does.

A stall is told by this rank's own record: nothing was written into it for half of `stall_timeout_s` (a warning),
or all of it (the end, with exit code 70). Time in which this process itself was stopped does not count.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from mgcaffe.comm.supervision.peers import Peers
from mgcaffe.comm.supervision.status import RUNNING, Place, Status, is_alive, launcher_pid
from mgcaffe.comm.supervision.verdict import LAST_WORD, lost_block, stall_block
from mgcaffe.errors import EXIT_PEER_FAILED, EXIT_STALLED

TICK_S = 0.5
PATIENCE_S = 4.0
"""How long a rank waits for the launcher to end it once the job is lost."""

_SUSPENDED_S = 5 * TICK_S
_LONGEST_RESCUE_S = 600.0


class Watch:
    """Watches the other ranks of this host, the launcher, and this rank's own progress.

    Args:
        status: this rank's record.
        speak: prints a line, or several, for the user.
        stall_timeout_s: after how many seconds without progress the job ends; 0: never.
        parent: the process whose end is the end of the job; None: nobody's.
        survives: whether MPI tells the ranks of a peer's death (ULFM), so that they may end in order.
        tasks: called about twice a second, on this thread.
        leave: ends the process; another one in tests.
        tick_s, patience_s: how often to look, and how long to wait to be ended.

    Attributes:
        lost: the last record of the first peer that died without a word.
    """

    def __init__(
        self,
        status: Status,
        speak: Callable[[str], None],
        *,
        stall_timeout_s: float = 0.0,
        parent: int | None = None,
        survives: bool = False,
        tasks: Sequence[Callable[[], None]] = (),
        leave: Callable[[int], NoReturn] = os._exit,
        tick_s: float = TICK_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.lost: Place | None = None
        self._status = status
        self._speak = speak
        self._stall_timeout_s = stall_timeout_s
        self._launcher = launcher_pid()
        self._must_live = [pid for pid in (parent, self._launcher) if pid is not None]
        self._survives = survives
        self._tasks = list(tasks)
        self._leave = leave
        self._tick_s = tick_s
        self._patience_s = patience_s
        self._peers = Peers(status.path.parent if status.path else None, status.size)
        self._closing = threading.Event()
        self._warned = False
        self._beat, self._moved_at = status.beat, time.monotonic()
        self._leave_at: float | None = None
        self._outlives_at: float | None = None
        self._code = EXIT_PEER_FAILED
        self._wake_before = -1
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._peers.add_descriptor(self._wake_read)
        self._thread = threading.Thread(target=self._run, name="mgcaffe watch", daemon=True)

    def start(self) -> Watch:
        """Starts the thread; from the main thread, signals are noted even while it computes."""
        if threading.current_thread() is threading.main_thread():
            self._wake_before = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._thread.start()
        return self

    def add_task(self, task: Callable[[], None]) -> None:
        """Has `task` called about twice a second, on the watching thread."""
        self._tasks.append(task)

    def close(self) -> None:
        """Ends the thread; harmless when repeated."""
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
            gone = self._peers.wait(self._tick_s)
            now = time.monotonic()
            if now - looked_at > self._tick_s + _SUSPENDED_S:
                self._moved_at = now
            looked_at = now
            self._read_signals(now)
            if self._closing.is_set():
                return
            for place in gone:
                self._peer_gone(place)
            self._check_parents()
            self._check_progress(now)
            if self._leave_at is not None and now > self._leave_at and not self._is_rescuing(now):
                self._leave(self._code)
            for task in self._tasks:
                task()

    def _read_signals(self, now: float) -> None:
        with contextlib.suppress(BlockingIOError):
            if signal.SIGTERM in os.read(self._wake_read, 4096):
                self._status.terminated()
                self._outlives_at = now + self._patience_s
        if self._outlives_at is not None and now > self._outlives_at and self._leave_at is None:
            # Whoever ends a job with SIGTERM kills soon after; so this one was meant for this rank alone.
            self._outlives_at = None
            self._status.terminated(False)

    def _peer_gone(self, place: Place) -> None:
        # One that was sent SIGTERM is a consequence, not the cause.
        if place.state != RUNNING or place.terminated or self.lost is not None or self._leave_at is not None:
            return
        self.lost = place
        if self._launcher is None and self._is_lowest():
            self._speak(f"error: {lost_block(place)}")
        self._leave_at = time.monotonic() + self._patience_s

    def _check_parents(self) -> None:
        dead = [pid for pid in self._must_live if not is_alive(pid)]
        if not dead or self._leave_at is not None:
            return
        what = "the launcher" if dead[0] == self._launcher else "the process that started this rank"
        if self._is_lowest():
            place = self._status.read().describe()
            self._last_word(f"{what} (process {dead[0]}) is gone, so the job ends: {place}", EXIT_PEER_FAILED)
        self._status.terminated()
        self._leave(EXIT_PEER_FAILED)

    def _check_progress(self, now: float) -> None:
        if self._status.beat != self._beat:
            self._beat, self._moved_at, self._warned = self._status.beat, now, False
            return
        idle = now - self._moved_at
        if not self._stall_timeout_s or self._leave_at is not None or idle < self._stall_timeout_s / 2:
            return
        ends = idle >= self._stall_timeout_s
        if self._warned and not ends:
            return
        self._warned = True
        speaks = self._is_lowest()
        if speaks:
            places = self._peers.places()
            block = stall_block(places, self._peers.stopped(), idle, self._status.size, ends)
            if ends:
                self._last_word(block, EXIT_STALLED)
            else:
                self._speak(f"warning: {block}")
        if ends:
            # The others wait for mpirun to end them, and leave by themselves if nobody does.
            self._code = EXIT_STALLED
            self._leave_at = now + (0.0 if speaks else self._patience_s)

    def _is_rescuing(self, now: float) -> bool:
        """Whether this rank writes the rescue snapshot, or waits for the one that does."""
        longest = self._stall_timeout_s or _LONGEST_RESCUE_S
        return self._survives and self._status.read().doing.startswith("rescuing") and now - self._moved_at < longest

    def _last_word(self, text: str, code: int) -> None:
        """Says why the job ends; the launcher, where it can read it, says it at the very end."""
        if self._launcher is not None and is_alive(self._launcher) and self._status.path is not None:
            with contextlib.suppress(OSError):
                (self._status.path.parent / LAST_WORD).write_text(f"{code}\n{text}", encoding="utf-8")
                return
        self._speak(f"error: {text}")

    def _is_lowest(self) -> bool:
        """Whether this is the lowest rank of this host that runs and is not stopped."""
        stopped = self._peers.stopped()
        able = [rank for rank in self._peers.running() if rank not in stopped]
        return not able or self._status.rank <= able[0]
