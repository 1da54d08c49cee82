"""A trainer's side of tables that lie with embedding servers.

    ahead = client.look_up([Request(table, bags, trains=True), ...])    returns at once
    vectors = ahead.wait()                                              the sum of each bag's rows
    client.update([(ahead, gradients of the sums)], rate, scale)

A thread of its own sends and receives, on a communicator of its own, so that the look-ups of the next batch are
answered while this one is computed. It works in order: a look-up after an update is answered with the updated rows.
All threads that train (Hogwild's workers) share it, each with look-ups of its own.

Where this rank is one of the servers, the thread looks up and updates the rows that lie here without a message.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy

from mgcaffe.comm.tables.assignment import Assignment
from mgcaffe.comm.tables.figures import LookUpFigures
from mgcaffe.comm.tables.job_queue import JobQueue
from mgcaffe.comm.tables.look_ups import LookUps
from mgcaffe.comm.tables.messages import DONE, Request
from mgcaffe.comm.tables.pending import PendingLookUp, PendingSave
from mgcaffe.comm.tables.server_link import ServerLink
from mgcaffe.comm.tables.shared_rows import SharedRows
from mgcaffe.comm.tables.table_requests import TableRequests
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.errors import CommError

_POLL_S = 200e-6
_SPIN_S = 50e-6
_SAVING_POLL_S = 5e-3


@dataclass
class _Job:
    """What the thread is to do, and when it is done."""

    work: Callable[[], None]
    done: threading.Event = field(default_factory=threading.Event)


class TableClient:
    """Looks up and updates tables that servers hold; any thread may call its methods, but only one `close`.

    Args:
        communicator: of trainers and servers, for this alone.
        shapes: rows and width of each table.
        assignment: which rows of each table lie where.
        servers: the ranks of the owners that the assignment names.
        dtype: of the tables.
        answers: the same ranks, for the servers' answers; None: they come on `communicator`.

    Attributes:
        figures: what look-ups have come to.
    """

    def __init__(
        self,
        communicator: Communicator,
        shapes: Sequence[tuple[int, int]],
        assignment: Assignment,
        servers: Sequence[int],
        dtype: numpy.dtype,
        answers: Communicator | None = None,
    ) -> None:
        self._link = ServerLink(communicator, shapes, assignment, servers, dtype, answers)
        self._look_ups = LookUps(self._link)
        self._tables = TableRequests(self._link, self._look_ups)
        self._jobs: JobQueue[_Job | None] = JobQueue()
        self._lock = threading.Lock()
        self._numbers = 0
        self._open: list[int] = []
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mgcaffe look-ups", daemon=True)
        self._thread.start()

    @property
    def figures(self) -> LookUpFigures:
        """As above."""
        return self._link.figures

    @property
    def own(self) -> SharedRows | None:
        """The rows that lie here, where this rank is one of the servers; set before any other call."""
        return self._link.own

    @own.setter
    def own(self, rows: SharedRows) -> None:
        self._link.own = rows

    # -- for the threads that train ----------------------------------------------------------------------

    def look_up(self, wanted: Sequence[Request]) -> PendingLookUp:
        """Ask for the sums over bags of rows; where one of them trains, `update` or `forget` has to follow."""
        with self._lock:  # numbers ascend in the order in which look-ups are sent
            pending = PendingLookUp(self, wanted, self._numbers)
            self._numbers += 1
            if any(each.trains for each in wanted):
                self._open.append(pending.number)
            oldest = self._open[0] if self._open else pending.number
            self._do(lambda: self._look_ups.ask(pending, oldest))
        return pending

    def update(
        self,
        gradients: Sequence[tuple[PendingLookUp, Sequence[numpy.ndarray | None]]],
        rate: float,
        scale: float = 1.0,
    ) -> None:
        """Update the tables by what backward passes made of look-ups; it does not wait.

        Args:
            gradients: the look-ups of an iteration, answered, each with the gradients of its sums, None for those that
                do not train. It keeps the arrays.
            rate: the solver's learning rate.
            scale: a factor on every gradient.
        """
        self._do(lambda: self._look_ups.give(gradients, rate, scale))
        for look_up, _ in gradients:
            self.forget(look_up)  # later look-ups alone tell the servers, behind the update

    def forget(self, look_up: PendingLookUp) -> None:
        """Let the servers forget a look-up that no update will follow; harmless when repeated."""
        with self._lock:
            if look_up.number in self._open:
                self._open.remove(look_up.number)

    def waited(self, seconds: float) -> None:
        """Count the time that a thread has waited for an answer."""
        with self._lock:
            self.figures.waited_s += seconds

    def read(self, table: int, what: int, into: numpy.ndarray) -> None:
        """Fill an array by all values (`what` 0) of a table, or by a history; one entry of the first axis a row."""
        self._wait_until_done(lambda: self._tables.read(table, what, into))

    def write(self, table: int, what: int, width: int, start: int, values: numpy.ndarray) -> None:
        """Replace values (`what` 0) of a table, or of a history.

        Args:
            table, what: which.
            width: how many numbers a row has of that.
            start: the first element.
            values: flat.
        """
        self._wait_until_done(lambda: self._tables.write(table, what, width, start, values))

    def settle(self) -> None:
        """Return once the servers have made all updates so far, so that any trainer can read them."""
        self._wait_until_done(self._tables.settle)

    def save(self, orders: Mapping[int, bytes]) -> PendingSave:
        """Let servers write their rows as they are after all updates so far; it does not wait.

        Args:
            orders: for each server what its `HeldTables.save` is given.
        """
        pending = PendingSave(self, orders)
        self._do(lambda: self._tables.save(pending, orders))
        return pending

    def load(self, orders: Mapping[int, bytes]) -> dict[int, bytes]:
        """Let servers replace rows by those in files, and return their answers, once all have; as `save`."""
        answers: dict[int, bytes] = {}
        self._wait_until_done(lambda: self._tables.load(orders, answers))
        return answers

    def run_beside(self, work: Callable[[], None]) -> None:
        """Run something on the thread that communicates, and wait for it."""
        self._wait_until_done(work)

    def close(self) -> None:
        """Tell the servers that this trainer is done, once all that was asked for has come; harmless when repeated.

        Raises:
            Exception: what went wrong on the thread that communicates, unless another error is on its way.
        """
        if not self._ended.is_set():
            self._jobs.put(None)
            self._thread.join()
        if self._error is not None and sys.exc_info()[0] is None:
            raise self._error

    def wait_for(self, event: threading.Event) -> None:
        """Wait for something that the other thread does.

        Raises:
            Exception: what went wrong there.
        """
        while not event.wait(0.1):
            if self._ended.is_set() and not event.is_set():
                raise self._error or CommError("tables were looked up after the look-ups had been ended")

    def _do(self, work: Callable[[], None]) -> _Job:
        if self._error is not None:
            raise self._error
        job = _Job(work)
        self._jobs.put(job)
        return job

    def _wait_until_done(self, work: Callable[[], None]) -> None:
        self.wait_for(self._do(work).done)

    # -- the thread that communicates --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (job := self._next_job()) is not None:
                job.work()
                job.done.set()
            self._look_ups.receive_all()
            for server in self._link.others:
                self._link.send(numpy.empty(0, numpy.uint8), server, DONE)
            self._link.wait()
        except BaseException as error:
            self._error = error  # of any kind: the training thread raises it
        finally:
            self._ended.set()

    def _next_job(self) -> _Job | None:
        """Return the next job; until there is one, receive answers and let messages go out."""
        quiet_since = time.perf_counter()
        while True:
            came = self._look_ups.receive()
            self._tables.receive_saved()
            self._link.reclaim()
            busy = self._link.is_sending or self._look_ups.are_open
            if not (busy or self._tables.are_saving):
                return self._jobs.get()
            try:
                if not busy:
                    return self._jobs.get(_SAVING_POLL_S)
                if came or time.perf_counter() - quiet_since < _SPIN_S:
                    return self._jobs.get(0)
                return self._jobs.get(_POLL_S)
            except queue.Empty:
                if came:
                    quiet_since = time.perf_counter()
