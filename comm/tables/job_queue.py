"""What other threads ask of the one that communicates, which waits for it for short times only.

`queue.SimpleQueue.get` is no use here: up to Python 3.12 it waits for ever if its time is over before it begins to
wait, as it can be on a busy machine. `queue.Queue` makes a lock for each wait.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class JobQueue(Generic[T]):
    """First in, first out; any thread may put, and one gets."""

    def __init__(self) -> None:
        self._jobs: deque[T] = deque()
        self._mutex = threading.Lock()
        self._came = threading.Lock()  # held while nothing has come since the last look
        self._came.acquire()

    def put(self, job: T) -> None:
        """Add a job, and wake the thread that waits for one."""
        with self._mutex:
            self._jobs.append(job)
            if self._came.locked():
                self._came.release()

    def get(self, patience_s: float | None = None) -> T:
        """Return the next job, which is awaited for so many seconds (0: not at all; None: for ever).

        Raises:
            queue.Empty: none has come.
        """
        while not self._jobs:
            if not self._came.acquire(timeout=-1 if patience_s is None else patience_s):
                raise queue.Empty
        return self._jobs.popleft()
