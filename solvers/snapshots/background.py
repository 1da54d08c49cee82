"""Runs one piece of work at a time on a thread, and keeps its events for the thread that trains."""

from __future__ import annotations

import threading
from collections.abc import Callable

from mgcaffe.errors import SnapshotError
from mgcaffe.solvers.events import Emit, Event, Warned


class BackgroundWriter:
    """Writes in the background.

    Args:
        emit: takes the events, on the thread that polls or waits.
        stops: whether a failure stops the run, for the warning that it brings.

    Attributes:
        failure: why the latest piece of work failed; None if it did not.
    """

    def __init__(self, emit: Emit, *, stops: bool) -> None:
        self.failure: SnapshotError | None = None
        self._emit = emit
        self._stops = stops
        self._thread: threading.Thread | None = None
        self._events: list[Event] = []

    def start(self, work: Callable[[], None]) -> None:
        """Run `work` on a thread, or here where the system gives none; nothing else may be running."""
        thread = threading.Thread(target=lambda: self._run(work), name="snapshot")
        try:
            thread.start()
        except RuntimeError:  # too many threads or processes (`ulimit -u`, a container's limit)
            self._run(work)
        else:
            self._thread = thread

    def report(self, event: Event) -> None:
        """Keep an event for the next `poll`; called on the background thread."""
        self._events.append(event)

    def poll(self) -> None:
        """Emit the events so far, without waiting."""
        while self._events:
            self._emit(self._events.pop(0))

    def wait(self) -> None:
        """Return once the work is done, its events emitted."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.poll()

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except SnapshotError as error:
            self.failure = SnapshotError(error.message, hint=error.hint)  # the frames of `error` would keep the copy
        except Exception as error:
            # A thread that dies of an exception would lose the snapshot without a message.
            self.failure = SnapshotError(f"cannot write a snapshot: {type(error).__name__}: {error}")
        else:
            self.failure = None
            return
        ending = "the run stops" if self._stops else "training goes on, and the next snapshot is tried"
        self.report(Warned(f"no snapshot: {self.failure.message}; {ending}"))
