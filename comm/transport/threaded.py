"""Ranks as threads of one process: what tests use to run collective code without MPI.

    results = run_ranks(4, lambda communicator: communicator.allgather(communicator.rank))

Sums are taken in the order of the ranks, so every rank gets the same bits, as over MPI. A rank that raises
breaks the group: the others leave their calls with `PeerFailure` instead of waiting for ever.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeVar

import numpy

from mgcaffe.comm.transport.buffers import on_host
from mgcaffe.comm.transport.communicator import Operation, Waiting
from mgcaffe.comm.transport.message_queue import MessageQueue, PendingMessage
from mgcaffe.comm.transport.messages import Envelope, Message, check_other, pieces
from mgcaffe.errors import CommError, PeerFailure

T = TypeVar("T")

_REDUCTIONS = {"sum": numpy.add, "max": numpy.maximum, "min": numpy.minimum}


class _Channel:
    """One sequence of collective calls: every rank lays down a value and takes all of them."""

    def __init__(self, size: int, timeout_s: float) -> None:
        self.size = size
        self.timeout_s = timeout_s
        self._values: list[Any] = [None] * size
        self._barrier = threading.Barrier(size)
        self.queues = [MessageQueue(rank, timeout_s) for rank in range(size)]
        self.dead: set[int] = set()
        self._children: dict[Any, _Channel] = {}
        self._children_lock = threading.Lock()

    def exchange(self, rank: int, value: Any, timeout_s: float | None = None) -> list[Any]:
        try:
            self._values[rank] = value
            self._barrier.wait(timeout_s or self.timeout_s)
            values = list(self._values)
            self._barrier.wait(timeout_s or self.timeout_s)
        except threading.BrokenBarrierError:
            raise PeerFailure(f"rank {rank} waited without success: another rank failed or never came") from None
        return values

    def child(self, name: Any, size: int | None = None) -> _Channel:
        """Return the channel of a duplicate (its number), or of a part of the ranks, the same one for all of them."""
        with self._children_lock:
            if name not in self._children:
                self._children[name] = _Channel(size or self.size, self.timeout_s)
            return self._children[name]

    def break_off(self) -> None:
        self._barrier.abort()
        for queue in self.queues:
            queue.break_off()
        with self._children_lock:
            children = list(self._children.values())
        for child in children:
            child.break_off()


class ThreadedCommunicator:
    """One rank of a group of threads; see `Communicator` for the methods."""

    library = "threads"
    transport = "threads"
    has_shrunk = False

    def __init__(self, rank: int, calls: _Channel, meetings: _Channel, host: str = "threads") -> None:
        self.rank = rank
        self.size = calls.size
        self.local_rank = rank
        self.local_size = calls.size
        self.host = host
        self._tolerated: frozenset[int] = frozenset()
        self._calls = calls
        self._meetings = meetings
        self._duplicates = 0

    def allreduce(self, buffer: Any, op: Operation = "sum") -> None:
        """Reduce in the order of the ranks."""
        with on_host(buffer) as array:
            parts = self._calls.exchange(self.rank, array.copy())
            for part in parts:
                if (part.size, part.dtype) != (array.size, array.dtype):
                    raise CommError(
                        f"ranks reduce different buffers: {array.size} elements of {array.dtype} on rank "
                        f"{self.rank}, {part.size} of {part.dtype} on another"
                    )
            total = parts[0].copy()
            for part in parts[1:]:
                _REDUCTIONS[op](total, part, out=total)
            array[:] = total

    def broadcast(self, buffer: Any, root: int = 0) -> None:
        """Copy the root's buffer."""
        with on_host(buffer) as array:
            array[:] = self._calls.exchange(self.rank, array.copy())[root]

    def reduce(self, buffer: Any, root: int = 0) -> None:
        """Reduce in the order of the ranks; the other buffers are spoilt, as MPI may leave them."""
        with on_host(buffer) as array:
            self.allreduce(array)
            if self.rank != root:
                array[:] = -1

    def alltoallv(
        self, send: numpy.ndarray, send_counts: Sequence[int], receive: numpy.ndarray, receive_counts: Sequence[int]
    ) -> None:
        """Take each rank's part for this one."""
        parts = self._calls.exchange(self.rank, numpy.split(send.copy(), numpy.cumsum(send_counts)[:-1]))
        mine = [part[self.rank] for part in parts]
        if [len(part) for part in mine] != list(receive_counts):
            raise CommError(f"rank {self.rank} expects parts of {list(receive_counts)} elements")
        receive[:] = numpy.concatenate(mine)

    def allgatherv(self, send: numpy.ndarray, receive: numpy.ndarray, counts: Sequence[int]) -> None:
        """Take every rank's part."""
        parts = self._calls.exchange(self.rank, send.copy())
        if [len(part) for part in parts] != list(counts):
            raise CommError(f"rank {self.rank} expects parts of {list(counts)} elements")
        receive[:] = numpy.concatenate(parts)

    def gather(self, value: T) -> list[T] | None:
        """Return all values on rank 0."""
        values = self.allgather(value)
        return values if self.rank == 0 else None

    def allgather(self, value: T) -> list[T]:
        """Return copies of all values."""
        return [copy.deepcopy(each) for each in self._calls.exchange(self.rank, value)]

    def broadcast_object(self, value: T, root: int = 0) -> T:
        """Return a copy of the root's value."""
        return self.allgather(value)[root]

    def barrier(self) -> None:
        """Wait for all threads."""
        self._calls.exchange(self.rank, None)

    def send(self, buffer: Any, to: int, tag: int = 0) -> None:
        """Send a rank a buffer, and wait until it has received it."""
        self.start_send(buffer, to, tag).wait()

    def start_send(self, buffer: Any, to: int, tag: int = 0) -> PendingMessage:
        """Send a rank a buffer without waiting; after `die`, send nothing."""
        check_other(self.rank, self.size, to)
        queue, parts = self._calls.queues[to], [part.copy() for part in pieces(buffer)]
        if self.rank in self._calls.dead:
            return PendingMessage(queue, self.rank, tag, parts)
        return queue.put(self.rank, tag, parts)

    def receive(self, buffer: Any, source: int, tag: int = 0) -> None:
        """Fill a buffer by a rank's next message."""
        check_other(self.rank, self.size, source)
        parts, came = pieces(buffer), self._calls.queues[self.rank].take(source, tag)
        if [part.size for part in parts] != [part.size for part in came]:
            raise CommError(
                f"rank {self.rank} expects {parts[0].size} bytes of rank {source} with tag {tag}, and "
                f"{came[0].size} came"
            )
        for part, content in zip(parts, came, strict=True):
            part[:] = content

    def receive_any(
        self, source: int | None = None, tag: int | None = None, patience_s: float | None = None
    ) -> Message | None:
        """Return the next message."""
        found = self.probe(source, tag, patience_s)
        if found is None:
            return None
        parts = self._calls.queues[self.rank].take(found.source, found.tag)
        return Message(found.source, found.tag, parts[0] if len(parts) == 1 else numpy.concatenate(parts))

    def probe(
        self, source: int | None = None, tag: int | None = None, patience_s: float | None = None
    ) -> Envelope | None:
        """Return what the next message is."""
        return self._calls.queues[self.rank].find(source, tag, patience_s)

    @property
    def lost(self) -> frozenset[int]:
        """Return the ranks that have left by `die`, if that is tolerated."""
        return frozenset(self._calls.dead) & self._tolerated

    def tolerate(self, ranks: Iterable[int]) -> None:
        """Report the death of these ranks."""
        self._tolerated = frozenset(ranks)

    def die(self) -> None:
        """Receive and send nothing any more, as a rank that was killed; for tests."""
        self._calls.dead.add(self.rank)
        self._calls.queues[self.rank].abandon()

    def shrink(self) -> None:
        """Do nothing: collective calls without a rank are not simulated."""

    def meet(self, message: bytes, patience_s: float | None) -> list[bytes] | None:
        """Exchange messages, giving up after `patience_s`."""
        try:
            return self._meetings.exchange(self.rank, message, patience_s)
        except PeerFailure:
            return None

    def duplicate(self, waiting: Waiting | None = None) -> ThreadedCommunicator:
        """Return the same rank on a channel of its own."""
        self._duplicates += 1
        return ThreadedCommunicator(self.rank, self._calls.child(self._duplicates), self._meetings, self.host)

    def split(self, color: int | None) -> ThreadedCommunicator | None:
        """Return the threads that give the same number."""
        colors = self._calls.exchange(self.rank, color)
        self._duplicates += 1
        members = [rank for rank, theirs in enumerate(colors) if theirs == color]
        calls = self._calls.child((self._duplicates, color), len(members))
        meetings = self._meetings.child((self._duplicates, color), len(members))
        return None if color is None else ThreadedCommunicator(members.index(self.rank), calls, meetings, self.host)

    def set_busy_polling(self, enabled: bool) -> None:
        """Do nothing: threads wake each other."""

    def set_waiting(self, waiting: Waiting) -> None:
        """Do nothing: threads wake each other."""

    def abort(self, code: int) -> NoReturn:
        """Break the group off and end this thread."""
        self._calls.break_off()
        self._meetings.break_off()
        raise SystemExit(code)

    def close(self) -> None:
        """Do nothing."""


def run_ranks(size: int, function: Callable[[ThreadedCommunicator], T], *, timeout_s: float = 20.0) -> list[T]:
    """Run `function(communicator)` on `size` threads and return their results by rank.

    Raises:
        Exception: whatever the first failing rank raised (never a `PeerFailure` that is only its
            consequence).
    """
    calls, meetings = _Channel(size, timeout_s), _Channel(size, timeout_s)
    results: list[Any] = [None] * size
    failures: dict[int, BaseException] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = function(ThreadedCommunicator(rank, calls, meetings))
        except BaseException as error:
            failures[rank] = error
            calls.break_off()

    threads = [threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    causes = [failures[rank] for rank in sorted(failures) if not isinstance(failures[rank], PeerFailure)]
    if failures:
        raise (causes or list(failures.values()))[0]
    return results
