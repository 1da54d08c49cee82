"""The communicator over MPI, through mpi4py, imported only where there is more than one rank.

Every call is MPI's nonblocking one, tested until it is complete, or the blocking one where `Waiting.blocking`
asks for it. Testing has three merits: a waiting rank leaves its core to others, a library that allows one
thread at a time inside MPI (MPI_THREAD_SERIALIZED) works under a lock, and a rank can stop waiting for a peer
that has failed.

`python benchmarks/contention.py` under mpirun prints what one all-reduce costs in both ways.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy

from mgcaffe.comm.transport import ulfm
from mgcaffe.comm.transport.buffers import on_host
from mgcaffe.comm.transport.communicator import Operation, Waiting
from mgcaffe.comm.transport.messages import Envelope, Message
from mgcaffe.comm.transport.mpi_library import library_name
from mgcaffe.comm.transport.mpi_messages import MpiMessages, MpiSending
from mgcaffe.errors import CommError, PeerFailure

if TYPE_CHECKING:
    from mpi4py import MPI

T = TypeVar("T")

# MPI counts elements with a C int.
_MAX_ELEMENTS = 1 << 30

_lock = threading.Lock()


class MpiCommunicator:
    """A group of ranks over an MPI communicator, which it owns; see `Communicator` for the methods."""

    transport = "mpi"

    def __init__(self, comm: MPI.Intracomm, *, launcher: str, waiting: Waiting | None = None) -> None:
        from mpi4py import MPI

        self._mpi = MPI
        self._comm: MPI.Intracomm | None = comm
        self._meeting = comm.Dup()
        ulfm.remember(comm)
        ulfm.remember(self._meeting)
        self._launcher = launcher
        self._serialized = MPI.Query_thread() < MPI.THREAD_MULTIPLE
        self.waiting = waiting or Waiting()
        self._polls_busily = False
        self._tolerated: frozenset[int] = frozenset()
        self.lost: frozenset[int] = frozenset()
        self.has_shrunk = False
        self._messages = MpiMessages(MPI, self)
        self._operations = {"sum": MPI.SUM, "max": MPI.MAX, "min": MPI.MIN}
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()
        self.host = socket.gethostname()
        self.library = library_name(MPI)
        neighbours = comm.Split_type(MPI.COMM_TYPE_SHARED, key=self.rank)
        self.local_rank = neighbours.Get_rank()
        self.local_size = neighbours.Get_size()
        neighbours.Free()

    def allreduce(self, buffer: Any, op: Operation = "sum") -> None:
        """Reduce the buffer in place over all ranks; a device tensor travels through pinned host memory."""
        operation = self._operations[op]
        comm = self._open()
        with on_host(buffer) as array:
            for start in range(0, array.size, _MAX_ELEMENTS):
                part = array[start : start + _MAX_ELEMENTS]
                self._run(comm.Allreduce, comm.Iallreduce, self._mpi.IN_PLACE, part, operation)

    def reduce(self, buffer: Any, root: int = 0) -> None:
        """Sum the buffers on the root."""
        comm = self._open()
        with on_host(buffer) as array:
            for start in range(0, array.size, _MAX_ELEMENTS):
                part = array[start : start + _MAX_ELEMENTS]
                ends = (self._mpi.IN_PLACE, part) if self.rank == root else (part, None)
                self._run(comm.Reduce, comm.Ireduce, *ends, self._mpi.SUM, root)

    def alltoallv(
        self, send: numpy.ndarray, send_counts: Sequence[int], receive: numpy.ndarray, receive_counts: Sequence[int]
    ) -> None:
        """Send each rank its part and receive one of each."""
        comm = self._open()
        self._run(comm.Alltoallv, comm.Ialltoallv, [send, list(send_counts)], [receive, list(receive_counts)])

    def allgatherv(self, send: numpy.ndarray, receive: numpy.ndarray, counts: Sequence[int]) -> None:
        """Gather the parts of all ranks on all of them."""
        comm = self._open()
        self._run(comm.Allgatherv, comm.Iallgatherv, send, [receive, list(counts)])

    def broadcast(self, buffer: Any, root: int = 0) -> None:
        """Replace the buffer by the root's."""
        comm = self._open()
        with on_host(buffer) as array:
            for start in range(0, array.size, _MAX_ELEMENTS):
                part = array[start : start + _MAX_ELEMENTS]
                self._finish(partial(comm.Ibcast, part, root))

    def gather(self, value: T) -> list[T] | None:
        """Return the values of all ranks on rank 0."""
        values = self.allgather(value)
        return values if self.rank == 0 else None

    def allgather(self, value: T) -> list[T]:
        """Return the (pickled) values of all ranks."""
        messages = self._exchange(self._open(), pickle.dumps(value), None)
        assert messages is not None
        return [pickle.loads(message) for message in messages]

    def broadcast_object(self, value: T, root: int = 0) -> T:
        """Return the root's (pickled) value."""
        comm = self._open()
        message = pickle.dumps(value) if self.rank == root else b""
        length = numpy.array([len(message)], dtype=numpy.int64)
        self._finish(lambda: comm.Ibcast(length, root))
        content = numpy.frombuffer(message, numpy.uint8) if message else numpy.empty(length[0], numpy.uint8)
        self._finish(lambda: comm.Ibcast(content, root))
        return value if self.rank == root else pickle.loads(content.tobytes())

    def barrier(self) -> None:
        """Wait for all ranks."""
        comm = self._open()
        self._finish(lambda: comm.Ibarrier())

    def send(self, buffer: Any, to: int, tag: int = 0) -> None:
        """Send a rank a buffer."""
        self.start_send(buffer, to, tag).wait()

    def start_send(self, buffer: Any, to: int, tag: int = 0) -> MpiSending:
        """Send a rank a buffer without waiting."""
        return self._messages.start_send(self._open(), buffer, to, tag)

    def receive(self, buffer: Any, source: int, tag: int = 0) -> None:
        """Fill a buffer by a rank's next message."""
        self._messages.receive(self._open(), buffer, source, tag)

    def receive_any(
        self, source: int | None = None, tag: int | None = None, patience_s: float | None = None
    ) -> Message | None:
        """Return the next message."""
        return self._messages.receive_any(self._open(), source, tag, patience_s)

    def probe(
        self, source: int | None = None, tag: int | None = None, patience_s: float | None = None
    ) -> Envelope | None:
        """Return what the next message is."""
        return self._messages.probe(self._open(), source, tag, patience_s)

    def tolerate(self, ranks: Iterable[int]) -> None:
        """Let messages go on when one of these ranks dies."""
        self._tolerated = frozenset(ranks)

    def tolerates(self, failure: PeerFailure) -> bool:
        """Return whether a failure is the death of ranks that is tolerated."""
        return bool(failure.failed) and failure.failed <= self._tolerated

    def passes_over(self, error: MPI.Exception) -> bool:
        """Note the death of ranks that is tolerated, if it made a look for messages fail; return whether it did."""
        found = ulfm.acknowledge(self._mpi, error, self._open(), self._tolerated)
        self.lost |= found
        return bool(found)

    def shrink(self) -> None:
        """Replace the communicator by one of the ranks that are alive."""
        if not ulfm.is_enabled():
            return
        comm: Any = self.call(self._open().Shrink)
        self._comm, self._meeting = comm, self.call(comm.Dup)
        ulfm.remember(comm)
        ulfm.remember(self._meeting)
        self.has_shrunk = self.has_shrunk or comm.Get_size() < self.size
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self._tolerated = self.lost = frozenset()

    def meet(self, message: bytes, patience_s: float | None) -> list[bytes] | None:
        """Exchange messages on a channel of its own, giving up after `patience_s`."""
        return self._exchange(self._meeting, message, patience_s)

    def duplicate(self, waiting: Waiting | None = None) -> MpiCommunicator:
        """Return the same ranks on a separate MPI communicator."""
        with _lock:
            comm = self._open().Dup()
        return MpiCommunicator(comm, launcher=self._launcher, waiting=waiting or self.waiting)

    def split(self, color: int | None) -> MpiCommunicator | None:
        """Return the ranks of the same number on an MPI communicator of their own."""
        with _lock:
            comm: Any = self._open().Split(self._mpi.UNDEFINED if color is None else color, self.rank)
        if color is None:
            return None
        part = MpiCommunicator(comm, launcher=self._launcher, waiting=self.waiting)
        part.set_busy_polling(self._polls_busily)
        return part

    def set_busy_polling(self, enabled: bool) -> None:
        """Poll without a pause at first, or leave the core to the computation."""
        self._polls_busily = enabled

    def set_waiting(self, waiting: Waiting) -> None:
        """Change between MPI's blocking and nonblocking calls, which never match each other."""
        self.waiting = waiting

    def abort(self, code: int) -> NoReturn:
        """End every rank; `code` becomes the launcher's exit code.

        Open MPI's mpirun ends the job when a rank exits non-zero without finalising, and prints one notice;
        MPI_Abort does the same there with a second notice of eight lines. Elsewhere MPI_Abort is the sure
        way.
        """
        if ulfm.is_enabled():
            os.kill(os.getpid(), signal.SIGKILL)
        if self._launcher == "openmpi":
            os._exit(code)
        self._mpi.COMM_WORLD.Abort(code)
        os._exit(code)

    def close(self) -> None:
        """Give up the communicator; its MPI resources go when MPI is finalised.

        MPI_Comm_free is collective and would wait for peers that may be gone.
        """
        self._comm = None

    def _open(self) -> MPI.Intracomm:
        if self._comm is None:
            raise CommError("a communicator was used after it was closed")
        return self._comm

    def _exchange(self, comm: MPI.Intracomm, message: bytes, patience_s: float | None) -> list[bytes] | None:
        """All-gather byte strings of any lengths: the lengths first, then the contents."""
        lengths = numpy.empty(self.size, dtype=numpy.int64)
        length = numpy.array([len(message)], dtype=numpy.int64)
        if not self._finish(lambda: comm.Iallgather(length, lengths), patience_s):
            return None
        contents = numpy.empty(int(lengths.sum()), dtype=numpy.uint8)
        own = numpy.frombuffer(message, numpy.uint8)
        if not self._finish(lambda: comm.Iallgatherv(own, [contents, lengths.tolist()]), patience_s):
            return None
        ends = numpy.cumsum(lengths).tolist()
        return [contents[end - length : end].tobytes() for end, length in zip(ends, lengths.tolist(), strict=True)]

    def _run(self, blocking: Callable[..., None], nonblocking: Callable[..., MPI.Request], *arguments: Any) -> None:
        """Make a collective call in the way that `waiting` asks for."""
        if self.waiting.blocking and not self._serialized:
            self._guarded(partial(blocking, *arguments))
        else:
            self._finish(partial(nonblocking, *arguments))

    def _guarded(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except self._mpi.Exception as error:
            if failure := ulfm.peer_failure(self._mpi, error, self._comm, self._tolerated):
                raise failure from None
            raise CommError(f"MPI failed on rank {self.rank} ({self.host}): {error}") from error

    def _finish(self, start: Callable[[], MPI.Request], patience_s: float | None = None) -> bool:
        """Start a nonblocking call and wait for its end; False if it takes longer than `patience_s`."""
        request = self.call(start)
        return self.poll(lambda: self.call(request.Test), patience_s)

    def call(self, function: Callable[[], T]) -> T:
        """Make an MPI call that does not wait, under the lock where the library needs it."""
        if not self._serialized:
            return self._guarded(function)
        with _lock:
            return self._guarded(function)

    def poll(self, test: Callable[[], bool], patience_s: float | None = None) -> bool:
        """Call a test until it returns True, pausing as `waiting` says; False if it takes longer than `patience_s`."""
        began = time.perf_counter()
        while not test():
            waited = time.perf_counter() - began
            if patience_s is not None and waited > patience_s:
                return False
            if waited < (self.waiting.busy_spin_s if self._polls_busily else self.waiting.spin_s):
                os.sched_yield()
            else:
                time.sleep(self.waiting.pause(waited))
        return True
