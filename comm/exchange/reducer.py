"""The background reducer: a thread that takes complete groups from a queue and averages one after the other.

Nonblocking MPI collectives make no progress by themselves, so some thread must drive them, and the computing
thread has other work. How the reducer's thread waits is `Waiting`: by default it starts MPI's nonblocking
call and tests it, without a pause for 50 us, then every 0.2 ms, and from 20 ms on with pauses of a hundredth of what
it has waited, up to 1 ms. Once the computing thread itself waits, its core is free, and the reducer tests
without a pause for the first 5 ms (busy polling).

Measured on one machine of two cores without a GPU, two ranks, 30 layers of 3 ms with 18 MB of gradients
(`mpirun --bind-to none -n 2 python benchmarks/contention.py`, Open MPI 5.0.11), ms per iteration:

| communication             | blocking | polled every 0.2 ms | polled every 1 ms |
|---------------------------|----------|---------------------|-------------------|
| none                      |     93.2 |                     |                   |
| 30 groups beside backward |    170.7 |               105.2 |             105.5 |
| 4 groups beside backward  |    112.9 |               101.3 |             101.7 |
| 1 group after backward    |    104.1 |               100.7 |             100.4 |

A blocking call spins until the peer comes, on a core that the backward pass needs. Polling every 1 ms costs
small messages 2 ms and more, every 0.2 ms 0.9 ms, so 0.2 ms is the default. Where a GPU
computes, a blocking call has the lowest latency: `Waiting(blocking=True)`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mgcaffe.comm.exchange.emulation import emulate
from mgcaffe.comm.exchange.gradient_path import GradientPath, HostPath, make_path
from mgcaffe.comm.exchange.sums.base import TransferSettings, set_busy_polling, set_waiting
from mgcaffe.comm.exchange.sums.make import make_sum
from mgcaffe.comm.exchange.transports import open_channel
from mgcaffe.comm.planning.plan import Segment
from mgcaffe.comm.transport.communicator import Communicator, Waiting
from mgcaffe.errors import CommError

_JOIN_S = 5.0


class Reduction:
    """The handle of a submitted group.

    Attributes:
        group: its index in the plan.
        start, end: the clock before and after its all-reduce, once it is done.
    """

    def __init__(self, reducer: Reducer, group: int) -> None:
        self._reducer = reducer
        self.group = group
        self.start = self.end = 0.0
        self.is_reduced = False

    @property
    def is_done(self) -> bool:
        """Whether the group is reduced, or never will be: `wait` returns or raises at once."""
        return self.is_reduced or self._reducer.has_failed

    def wait(self) -> None:
        """Return when this group and those submitted before it are reduced.

        What the computing thread does next sees their means.

        Raises:
            Exception: what went wrong on the reducer's thread.
        """
        self._reducer.wait_for(self)


class Reducer:
    """Takes the mean over the ranks of slices of one flat buffer, in the background, in the order submitted.

    Args:
        communicator: the ranks; the reducer uses a duplicate, or a channel over another transport.
        flat: the flat gradient buffer, a tensor (any device) or a numpy array.
        waiting: how its thread waits for the peers.
        transfer: in which type and by which way gradients travel.
        segments: the layers' places in the buffer.
        clock: seconds, for the records.
    """

    def __init__(
        self,
        communicator: Communicator,
        flat: Any,
        *,
        waiting: Waiting | None = None,
        transfer: TransferSettings | None = None,
        segments: Sequence[Segment] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        transfer = transfer if transfer is not None else TransferSettings()
        self._communicator = open_channel(communicator, transfer.transport, waiting)
        self._sum = make_sum(self._communicator, transfer, segments)
        self._path: GradientPath = emulate(
            make_path(self._communicator, flat, self._sum, transfer.transport, divides=transfer.divides), transfer
        )
        self.element_bytes = self._path.element_bytes
        self._starts_early = isinstance(self._path, HostPath) and self._path.starts_early
        self._at_once = 1
        self._clock = clock
        self._queue: queue.SimpleQueue[tuple[Reduction, int, int, Any] | None] = queue.SimpleQueue()
        self._changed = threading.Condition()
        self._awaited: Reduction | None = None
        self._error: BaseException | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="mgcaffe reducer", daemon=True)
        self._thread.start()

    def submit(self, group: int, offset: int, count: int) -> Reduction:
        """Queue a slice of the buffer whose gradients are complete; return its handle at once.

        Raises:
            CommError: the reducer is closed.
        """
        if self._closed:
            raise CommError("a gradient was handed to the reducer after it was closed")
        handle = Reduction(self, group)
        self._queue.put((handle, offset, count, self._path.mark(offset, count)))
        return handle

    def wait_for(self, handle: Reduction) -> None:
        """Return when a group is reduced; the thread wakes the caller for this one alone. See `Reduction.wait`."""
        with self._changed:
            if not handle.is_done:
                self._awaited = handle
                set_busy_polling(self._sum, True)
                self._changed.wait_for(lambda: handle.is_done)
                set_busy_polling(self._sum, False)
            if self._error is not None:
                raise self._error
        self._path.finish()

    @property
    def is_one_by_one(self) -> bool:
        """Whether no group's all-reduce begins before the last one's has ended."""
        return self._at_once == 1

    @property
    def has_failed(self) -> bool:
        """Whether the thread ended with an error, so that nothing more is reduced."""
        return self._error is not None

    def set_busy_polling(self, enabled: bool) -> None:
        """Poll without a pause at first, or not, while the computing thread waits for no group."""
        set_busy_polling(self._sum, enabled)

    def set_waiting(self, waiting: Waiting) -> None:
        """Wait for the peers in another way from now on; between two iterations, and alike on all ranks."""
        if not self._starts_early:
            waiting = replace(waiting, at_once=1)
        set_waiting(self._sum, waiting)
        self._at_once = waiting.at_once

    def close(self) -> None:
        """End the thread; harmless when repeated, and after an error."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        # A thread that waits for a failed peer may never end; it is a daemon and goes with the process.
        self._thread.join(_JOIN_S if self._error is None else 0.0)
        for channel in self._sum.channels:
            channel.close()
        self._communicator.close()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            handle, offset, count, token = item
            handle.start = self._clock()
            try:
                self._path.reduce(offset, count, token)
            except BaseException as error:
                # Of any kind: the computing thread raises it in wait().
                with self._changed:
                    self._error = error
                    self._changed.notify_all()
                return
            with self._changed:
                handle.end = self._clock()
                handle.is_reduced = True
                if handle is self._awaited:
                    self._changed.notify_all()
