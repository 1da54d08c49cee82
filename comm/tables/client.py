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
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy

from mgcaffe.comm.tables.assignment import Assignment, RowRange
from mgcaffe.comm.tables.figures import LookUpFigures
from mgcaffe.comm.tables.job_queue import JobQueue
from mgcaffe.comm.tables.messages import (
    DONE,
    LOAD,
    LOOK_UP,
    READ,
    REPLY,
    SAVE,
    SAVED,
    UPDATE,
    WRITE,
    Block,
    LookUp,
    Request,
    encode_block,
    encode_look_up,
    encode_update,
)
from mgcaffe.comm.tables.pending import PendingLookUp, PendingSave, Share, share_of
from mgcaffe.comm.tables.server import TableServer
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.transport.messages import Sending
from mgcaffe.errors import CommError

_POLL_S = 200e-6
_SPIN_S = 50e-6
_SAVING_POLL_S = 5e-3
_BYTES_AT_ONCE = 64 << 20


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
        own: what serves the rows that lie here, where this rank is one of the servers; to be set before any other call.
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
        self.figures = LookUpFigures()
        self.own: TableServer | None = None
        self._communicator = communicator
        self._answers = communicator if answers is None else answers
        self._shapes = shapes
        self._dtype = numpy.dtype(dtype)
        self._held: dict[int, dict[int, RowRange]] = {server: {} for server in servers}
        for table, ranges in enumerate(assignment):
            for rows in ranges:
                self._held[servers[rows.owner]][table] = rows
        self._jobs: JobQueue[_Job | None] = JobQueue()
        self._unanswered: dict[int, deque[PendingLookUp]] = {server: deque() for server in self._held}
        self._sendings: list[tuple[Sending, numpy.ndarray]] = []
        self._lock = threading.Lock()
        self._saves: list[PendingSave] = []
        self._numbers = 0
        self._open: list[int] = []
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mgcaffe look-ups", daemon=True)
        self._thread.start()

    # -- for the threads that train ----------------------------------------------------------------------

    def look_up(self, wanted: Sequence[Request]) -> PendingLookUp:
        """Ask for the sums over bags of rows; where one of them trains, `update` or `forget` has to follow."""
        with self._lock:  # numbers ascend in the order in which look-ups are sent
            pending = PendingLookUp(self, wanted, self._numbers)
            self._numbers += 1
            if any(each.trains for each in wanted):
                self._open.append(pending.number)
            oldest = self._open[0] if self._open else pending.number
            self._do(lambda: self._ask(pending, oldest))
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
        self._do(lambda: self._give(gradients, rate, scale))
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
        self._wait_until_done(lambda: self._read(table, what, into))

    def write(self, table: int, what: int, width: int, start: int, values: numpy.ndarray) -> None:
        """Replace values (`what` 0) of a table, or of a history.

        Args:
            table, what: which.
            width: how many numbers a row has of that.
            start: the first element.
            values: flat.
        """
        self._wait_until_done(lambda: self._write(table, what, width, start, values))

    def settle(self) -> None:
        """Return once the servers have made all updates so far, so that any trainer can read them."""
        self._wait_until_done(self._settle)

    def save(self, orders: Mapping[int, bytes]) -> PendingSave:
        """Let servers write their rows as they are after all updates so far; it does not wait.

        Args:
            orders: for each server what its `HeldTables.save` is given.
        """
        pending = PendingSave(self, orders)
        self._do(lambda: self._ask_to_save(pending, orders))
        return pending

    def load(self, orders: Mapping[int, bytes]) -> dict[int, bytes]:
        """Let servers replace rows by those in files, and return their answers, once all have; as `save`."""
        answers: dict[int, bytes] = {}
        self._wait_until_done(lambda: self._load(orders, answers))
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
            self._await_answers()
            for server in self._others():
                self._send(numpy.empty(0, numpy.uint8), server, DONE)
            for sending, _ in self._sendings:
                sending.wait()
        except BaseException as error:
            self._error = error  # of any kind: the training thread raises it
        finally:
            self._ended.set()

    def _next_job(self) -> _Job | None:
        """Return the next job; until there is one, receive answers and let messages go out."""
        quiet_since = time.perf_counter()
        while True:
            came = self._receive_answers()
            busy = bool(self._sendings or any(self._unanswered.values()))
            if not (busy or self._saves):
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

    def _others(self) -> list[int]:
        """Return the servers that are other ranks than this one."""
        return [server for server in self._held if server != self._communicator.rank]

    def _ask(self, pending: PendingLookUp, oldest: int) -> None:
        mine: list[Request] = []
        for server, held in self._held.items():
            shares = [
                share_of(place, bags, held[table], self._shapes[table])
                for place, (table, bags, _) in enumerate(pending.wanted)
                if table in held
            ]
            if not shares:
                continue
            pending.shares[server] = shares
            requests = [pending.wanted[each.place]._replace(bags=each.bags) for each in shares]
            if server == self._communicator.rank:
                mine = requests
                continue
            self._send(encode_look_up(LookUp(pending.number, oldest, requests)), server, LOOK_UP)
            self._unanswered[server].append(pending)
            pending.missing[server] = numpy.empty(sum(each.size for each in shares), self._dtype)
        if mine:  # while the others look theirs up
            assert self.own is not None
            rows = numpy.concatenate([each.bags.rows for each in mine])
            self._put(pending, self._communicator.rank, self.own.look_up(mine, rows))
        if not pending.missing:
            self._complete(pending)

    def _receive_answers(self) -> bool:
        """Receive what has come; return whether anything has."""
        came = False
        for server, waiting in self._unanswered.items():
            while waiting and self._answers.probe(server, REPLY, 0) is not None:
                pending = waiting.popleft()
                self._receive(pending, server)
                came = True
        self._receive_saved()
        self._reclaim()
        return came

    def _receive_saved(self) -> None:
        """Receive what servers say of files that they have written."""
        for pending in list(self._saves):
            for server in list(pending.missing):
                answer = self._saved_by(server, pending)
                if answer is not None:
                    pending.missing.remove(server)
                    pending.answers[server] = answer
            if not pending.missing:
                self._saves.remove(pending)
                pending.done.set()

    def _saved_by(self, server: int, pending: PendingSave) -> bytes | None:
        """Return what a server says of its file, None if it is not written yet."""
        if server == self._communicator.rank:
            return None if pending.own is None else pending.own.result()
        message = self._answers.receive_any(server, SAVED, 0)
        return None if message is None else message.content.tobytes()

    def _await_answers(self) -> None:
        """Receive all that is still to come."""
        for server, waiting in self._unanswered.items():
            while waiting:
                self._receive(waiting.popleft(), server)

    def _receive(self, pending: PendingLookUp, server: int) -> None:
        answer = pending.missing.pop(server)
        self._answers.receive(answer, server, REPLY)
        self.figures.received += answer.nbytes
        self._put(pending, server, answer)
        if not pending.missing:
            self._complete(pending)

    def _put(self, pending: PendingLookUp, server: int, answer: numpy.ndarray) -> None:
        """Add what a server has answered to a look-up."""
        at = 0
        for share in pending.shares[server]:
            self._put_share(pending, share, answer[at : at + share.size])
            at += share.size

    def _put_share(self, pending: PendingLookUp, share: Share, answer: numpy.ndarray) -> None:
        table, bags, _ = pending.wanted[share.place]
        vectors = answer.reshape(-1, self._shapes[table][1])
        if share.bag_numbers is None:
            pending.vectors[share.place] = vectors
            return
        if not pending.vectors[share.place].ndim == 2:
            pending.vectors[share.place] = numpy.zeros((bags.count, vectors.shape[1]), self._dtype)
        pending.vectors[share.place][share.bag_numbers] += vectors

    def _complete(self, pending: PendingLookUp) -> None:
        self.figures.look_ups += 1
        self.figures.latency_s += time.perf_counter() - pending.asked_at
        pending.answered.set()

    def _give(
        self, gradients: Sequence[tuple[PendingLookUp, Sequence[numpy.ndarray | None]]], rate: float, scale: float
    ) -> None:
        for server in self._others():
            numbers: list[int] = []
            pieces: list[numpy.ndarray] = []
            for look_up, given in gradients:
                shares = [each for each in look_up.shares.get(server, ()) if look_up.wanted[each.place].trains]
                if shares:
                    numbers.append(look_up.number)
                    pieces += [self._gradient(share, given[share.place]) for share in shares]
            if numbers:
                self._send(encode_update(numbers, rate, scale, pieces, self._dtype), server, UPDATE)

        mine = [
            (table, share.bags, self._gradient(share, given[share.place]).reshape(-1, self._shapes[table][1]))
            for look_up, given in gradients
            for share in look_up.shares.get(self._communicator.rank, ())
            for table, _, trains in [look_up.wanted[share.place]]
            if trains
        ]
        if mine:
            assert self.own is not None
            self.own.update(mine, rate, scale)

    def _gradient(self, share: Share, values: numpy.ndarray | None) -> numpy.ndarray:
        """Return the gradient of what a share has answered; zeros where none was given."""
        if values is None:
            return numpy.zeros(share.size, self._dtype)
        return values if share.bag_numbers is None else values[share.bag_numbers]

    def _read(self, table: int, what: int, into: numpy.ndarray) -> None:
        self._await_answers()
        flat = into.reshape(-1)
        for server, block, at in self._blocks(table, what, flat.size // len(into), 0, flat.size):
            if server == self._communicator.rank:
                assert self.own is not None
                flat[at : at + block.count] = self.own.read(block)
                continue
            self._send(encode_block(block), server, READ)
            self._answers.receive(flat[at : at + block.count], server, REPLY)

    def _write(self, table: int, what: int, width: int, start: int, values: numpy.ndarray) -> None:
        self._await_answers()
        for server, block, at in self._blocks(table, what, width, start, len(values)):
            part = numpy.ascontiguousarray(values[at : at + block.count], self._dtype)
            if server == self._communicator.rank:
                assert self.own is not None
                self.own.write(block, part)
                continue
            self._send(encode_block(block, part), server, WRITE)
            self._answers.receive(numpy.empty(0, self._dtype), server, REPLY)

    def _settle(self) -> None:
        """Read nothing from each server, which answers after the updates that it was given before."""
        self._await_answers()
        asked = [(server, min(self._held[server])) for server in self._others() if self._held[server]]
        for server, table in asked:
            self._send(encode_block(Block(table, 0, 0, 0)), server, READ)
        for server, _ in asked:
            self._answers.receive(numpy.empty(0, self._dtype), server, REPLY)

    def _ask_to_save(self, pending: PendingSave, orders: Mapping[int, bytes]) -> None:
        for server, order in orders.items():
            if server == self._communicator.rank:
                assert self.own is not None
                pending.own = self.own.save(order)
                continue
            self._send(numpy.frombuffer(order, numpy.uint8).copy(), server, SAVE)
        self._saves.append(pending)

    def _load(self, orders: Mapping[int, bytes], answers: dict[int, bytes]) -> None:
        self._await_answers()
        others = [server for server in self._others() if server in orders]
        for server in others:
            self._send(numpy.frombuffer(orders[server], numpy.uint8).copy(), server, LOAD)
        if self._communicator.rank in orders:
            assert self.own is not None
            answers[self._communicator.rank] = self.own.load(orders[self._communicator.rank])
        for server in others:
            message = self._answers.receive_any(server, REPLY)
            assert message is not None
            answers[server] = message.content.tobytes()

    def _blocks(self, table: int, what: int, width: int, start: int, count: int) -> Iterator[tuple[int, Block, int]]:
        """Yield (server, its block, where that begins in what is read or written), in pieces that can be copied."""
        at_once = _BYTES_AT_ONCE // self._dtype.itemsize
        for server, held in self._held.items():
            if table not in held:
                continue
            first, last = held[table].first * width, held[table].last * width
            for begin in range(max(first, start), min(last, start + count), at_once):
                end = min(last, start + count, begin + at_once)
                yield server, Block(table, what, begin - first, end - begin), begin - start

    def _send(self, content: numpy.ndarray, server: int, tag: int) -> None:
        self._sendings.append((self._communicator.start_send(content, server, tag), content))
        self.figures.sent += content.nbytes

    def _reclaim(self) -> None:
        """Let go of what has been sent."""
        if self._sendings:
            self._sendings = [(sending, content) for sending, content in self._sendings if not sending.is_done()]
