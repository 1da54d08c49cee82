"""A thread that makes things ahead of their use, in order, up to a fixed number of them."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from mgcaffe.errors import DataError

Item = TypeVar("Item")


class Prefetcher(Generic[Item]):
    """Calls `produce(0)`, `produce(1)`, ... in a thread and hands the results out in that order.

    What `produce` raises is raised by the `get` whose turn it would have been, and by every one after it.
    The thread ends with the process; `close` ends it earlier.

    Args:
        produce: makes item number i. It must not keep the prefetcher's owner alive, or nothing would ever
            close a forgotten one.
        depth: how many finished items may wait; at least 1.
    """

    def __init__(self, produce: Callable[[int], Item], depth: int) -> None:
        self._produce = produce
        self._depth = depth
        self._ready: deque[Item] = deque()
        self._failure: BaseException | None = None
        self._closed = False
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="prefetch", daemon=True)
        self._thread.start()

    def get(self) -> Item:
        """Return the next item, waiting until it is made.

        Raises:
            DataError: this process was forked from the one that has the thread.
            RuntimeError: the prefetcher is closed.
            BaseException: whatever `produce` raised.
        """
        if os.getpid() != self._process:
            raise DataError(
                f"the data are read by a thread of process {self._process}, which process {os.getpid()}, forked from"
                " it, does not have",
                hint="make the net in the process that uses it, or set prefetch: 0 in data_param",
            )
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._failure or self._closed)
            if self._closed:
                raise RuntimeError("the prefetcher is closed")
            if self._ready:
                item = self._ready.popleft()
                self._changed.notify_all()
                return item
            assert self._failure is not None
            raise self._failure

    def close(self) -> None:
        """End the thread, once the item that it is making is done, and drop what is ready."""
        if os.getpid() != self._process:
            return  # the thread is another process's, and may have held the lock when this one was forked
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        number = 0
        while self._has_room():
            try:
                item = self._produce(number)
            except BaseException as failure:  # it belongs to the thread that asks for the item
                with self._changed:
                    self._failure = failure
                    self._changed.notify_all()
                return
            with self._changed:
                if not self._closed:
                    self._ready.append(item)
                self._changed.notify_all()
            del item
            number += 1

    def _has_room(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._ready) < self._depth)
            return not self._closed
