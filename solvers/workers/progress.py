"""How far each worker is, and how far it may go on its own: workers run freely up to the next meeting.

An iteration may begin while its number is below the limit, which is the next meeting (a snapshot, the end). Worker 0,
the thread that trains, sets the limit; it alone waits for others, and they wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LOOK_EVERY_S = 1.0


class WorkerProgress:
    """Counts the iterations that workers have begun and completed.

    Args:
        workers: how many there are, worker 0 included.
        on_wait: is called now and then with what worker 0 waits for, as long as the others get on; a job's watch takes
            silence for a stall.

    Attributes:
        error: what ended a worker's thread; None: nothing did.
    """

    def __init__(self, workers: int, on_wait: Callable[[str], None] = lambda text: None) -> None:
        self.error: BaseException | None = None
        self._on_wait = on_wait
        self._changed = threading.Condition()
        self._begun = [0] * workers
        self._completed = [0] * workers
        self._limit = 0
        self._is_paused = False
        self._has_ended = False

    # -- of every worker ---------------------------------------------------------------------------------

    def begin(self, worker: int) -> bool:
        """Begin the worker's next iteration once it may, unless all have to end; worker 0 never waits here.

        Returns:
            Whether to run the iteration; if not, the worker's thread has to end.
        """
        with self._changed:
            if worker:
                self._changed.wait_for(lambda: self._must_end or self._may_begin(worker))
                if self._must_end:
                    return False
            self._begun[worker] += 1
            return True

    def completed(self, worker: int) -> None:
        """Take note that the worker's iteration is over."""
        with self._changed:
            self._completed[worker] = self._begun[worker]
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Take note that a worker's thread ends by an error; the first one counts, and the others end too."""
        with self._changed:
            self.error = self.error or error
            self._changed.notify_all()

    # -- of worker 0 -------------------------------------------------------------------------------------

    def start(self, iteration: int) -> None:
        """Let all stand at an iteration, which none may begin before the limit is raised."""
        with self._changed:
            self._begun = [iteration] * len(self._begun)
            self._completed = list(self._begun)
            self._limit = iteration
            self.error = None
            self._has_ended = False

    def allow(self, limit: int) -> None:
        """Let iterations with numbers below `limit` begin."""
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    def halt(self) -> int:
        """Let no further iteration begin but those that bring all workers to the one that is furthest.

        Returns:
            How many iterations each will have completed then; it is the limit from now on.
        """
        with self._changed:
            self._limit = max(self._begun)
            self._changed.notify_all()
            return self._limit

    def check(self) -> None:
        """Raise what has ended a worker's thread."""
        if self.error is not None:
            raise self.error

    def wait_for_others(self, iteration: int) -> None:
        """Return once every other worker has completed so many iterations.

        Raises:
            BaseException: what has ended a worker's thread.
        """
        self._wait(lambda: min(self._completed[1:], default=iteration) >= iteration, f"to end iteration {iteration}")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the other workers between two iterations meanwhile.

        Raises:
            BaseException: what has ended a worker's thread.
        """
        with self._changed:
            self._is_paused = True
        try:
            self._wait(lambda: self._completed[1:] == self._begun[1:], "to end their iterations")
            yield
        finally:
            with self._changed:
                self._is_paused = False
                self._changed.notify_all()

    def end(self) -> None:
        """Let the other workers' threads end, each after the iteration that it is in."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    # -- inside ------------------------------------------------------------------------------------------

    @property
    def _must_end(self) -> bool:
        return self._has_ended or self.error is not None

    def _may_begin(self, worker: int) -> bool:
        return not self._is_paused and self._begun[worker] < self._limit

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait for the other workers; `what` they are to do is part of what `on_wait` is given."""
        seen: list[int] = []
        with self._changed:
            while self.error is None and not is_so():
                if self._completed != seen:
                    seen = list(self._completed)
                    self._on_wait(f"waiting for the other workers {what}")
                self._changed.wait(_LOOK_EVERY_S)
            self.check()
