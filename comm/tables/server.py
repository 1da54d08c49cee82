"""An embedding server: holds rows of tables once, and answers the look-ups of many trainers at once.

One thread takes message after message from whoever sends one. What one trainer sends is answered in its order, so a
trainer whose look-up follows its update sees the updated rows. Nothing waits for a trainer that is slow to receive.

Where a trainer's death is tolerated (`Communicator.tolerate`) the server forgets it: it keeps the updates that it has
made by then, and drops what else the trainer has sent, as well as answers that are on their way to it.

A trainer can be a server as well, on a thread beside its training. It uses the rows that it holds itself without a
message, between two messages of others.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy

from mgcaffe.comm.supervision import status
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
    Bags,
    Block,
    LookUp,
    Request,
    decode_block,
    decode_look_up,
    decode_update,
)
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.transport.messages import Message, Sending
from mgcaffe.errors import CommError

_PATIENCE_S = 0.1
_POLL_S = 100e-6


class Saving(Protocol):
    """Rows that are being written to a file."""

    def result(self, patience_s: float | None = 0) -> bytes | None:
        """Return what the answer is, or None if they are not written within so many seconds (None: wait for ever)."""


class HeldTables(Protocol):
    """The rows of tables that a server holds, by the tables' numbers; used by one thread at a time.

    Attributes:
        dtype: of all their numbers.
        rows: how many rows of each table it holds; 0 of those that it has no part in.
        widths: how many numbers a row has.
    """

    dtype: numpy.dtype
    rows: Sequence[int]
    widths: Sequence[int]

    def look_up(self, requests: Sequence[Request], rows: numpy.ndarray) -> numpy.ndarray:
        """Return the sums of the rows of all bags, request after request, flat.

        Args:
            requests: what is looked up; the rows are in range.
            rows: of all of them, one after another.
        """

    def update(self, gradients: Sequence[tuple[int, Bags, numpy.ndarray]], rate: float, scale: float) -> None:
        """Update tables by what all of an iteration's look-ups add up to.

        Args:
            gradients: (table, bags, the gradients of their sums, bags x width); kept no longer than the call.
            rate: the solver's learning rate.
            scale: a factor on every gradient.
        """

    def numbers(self, table: int, what: int) -> numpy.ndarray:
        """Return the values (`what` 0) or a history of all rows, themselves; `Block` says what `what` means.

        Raises:
            CommError: there is no such history.
        """

    def save(self, order: bytes) -> Saving:
        """Begin to write all rows, as they are now, as an order says; what fails is part of the answer."""

    def load(self, order: bytes) -> bytes:
        """Replace rows by those in files, and return the answer; what fails is part of it."""


@dataclass
class ServerFigures:
    """What a server has done so far.

    Attributes:
        look_ups: batches' look-ups that it has answered.
        ids: in all of them together.
        updates: that it has made.
        received, sent: bytes of all messages.
    """

    look_ups: int = 0
    ids: int = 0
    updates: int = 0
    received: int = 0
    sent: int = 0


@dataclass
class _Client:
    """What a server knows of a trainer: the ids that it keeps, by the look-up's number; whether it is done, or dead."""

    kept: dict[int, list[tuple[int, Bags]]] = field(default_factory=dict)
    done: bool = False
    lost: bool = False


class TableServer:
    """Serves trainers until all of them are done.

    `look_up`, `update`, `read`, `write`, `save` and `load` are for other threads of this process as well: no message is
    served meanwhile.

    Args:
        communicator: of trainers and servers, for this alone.
        trainers: the ranks of the trainers that send messages.
        tables: what is served.
        answers: the same ranks, for what is answered, where this rank is a trainer as well, whose own requests to other
            ones go by `communicator`; None: this rank does nothing else, and answers go there too.

    Attributes:
        figures: what it has done so far, for others.
    """

    def __init__(
        self,
        communicator: Communicator,
        trainers: Iterable[int],
        tables: HeldTables,
        answers: Communicator | None = None,
    ) -> None:
        self.figures = ServerFigures()
        self._communicator = communicator
        self._answers = communicator if answers is None else answers
        self._is_trainer = answers is not None
        self._lock = threading.Lock()
        self._tables = tables
        self._serving = [status.encode(f"serving rank {rank}") for rank in range(communicator.size)]
        self._clients = {rank: _Client() for rank in trainers}
        self._sendings: list[tuple[Sending, numpy.ndarray]] = []
        self._savings: list[tuple[int, Saving]] = []

    def run(self) -> ServerFigures:
        """Answer messages until every trainer is done.

        Raises:
            CommError: a message makes no sense; names who sent it.
            PeerFailure: a rank is gone.
        """
        while not all(client.done for client in self._clients.values()):
            self.step(_PATIENCE_S)
        for _, saving in self._savings:
            saving.result(None)  # nobody waits for it any more, but the file is to be whole
        self._savings.clear()
        for sending, _ in self._sendings:
            sending.wait()
        self._sendings.clear()
        return self.figures

    def step(self, patience_s: float) -> bool:
        """Wait for a message for so many seconds and answer it; return whether there was one.

        Raises:
            CommError, PeerFailure: as `run`.
        """
        message = self._communicator.receive_any(patience_s=0 if self._sendings else patience_s)
        self._forget_lost()
        if message is not None:
            if not self._is_trainer:
                status.current().doing(self._serving[message.source])
            self._take(message)
        elif self._sendings:
            time.sleep(_POLL_S)  # messages go out while this looks whether they have
        self._answer_saved()
        self._reclaim()
        return message is not None

    def _forget_lost(self) -> None:
        """Go on without trainers that have died."""
        for rank in self._communicator.lost:
            client = self._clients[rank]
            client.done = client.lost = True
            client.kept.clear()

    # -- the rows, for this thread and others ------------------------------------------------------------

    def look_up(self, requests: Sequence[Request], rows: numpy.ndarray) -> numpy.ndarray:
        """Return the sums of all bags; see `HeldTables`."""
        with self._lock:
            return self._tables.look_up(requests, rows)

    def update(self, gradients: Sequence[tuple[int, Bags, numpy.ndarray]], rate: float, scale: float) -> None:
        """Update the rows; see `HeldTables`."""
        with self._lock:
            self._tables.update(gradients, rate, scale)

    def read(self, block: Block) -> numpy.ndarray:
        """Return a copy of a block's numbers.

        Raises:
            CommError: there is no such block.
        """
        with self._lock:
            return self._numbers(block).copy()

    def write(self, block: Block, values: numpy.ndarray) -> None:
        """Replace a block's numbers.

        Raises:
            CommError: there is no such block.
        """
        with self._lock:
            self._numbers(block)[...] = values

    def save(self, order: bytes) -> Saving:
        """Begin to write all rows; see `HeldTables`."""
        with self._lock:
            return self._tables.save(order)

    def load(self, order: bytes) -> bytes:
        """Replace rows by those in files; see `HeldTables`."""
        with self._lock:
            return self._tables.load(order)

    # -- messages ----------------------------------------------------------------------------------------

    def _take(self, message: Message) -> None:
        client = self._clients.get(message.source)
        if client is not None and client.lost:
            return  # it came before the death was noticed
        try:
            if client is None or client.done:
                raise CommError("it is no trainer" if client is None else "it has said that it is done")
            self._act(message, client)
        except CommError as error:
            role = "trainer" if self._is_trainer else "embedding server"
            raise CommError(
                f"{role}, rank {self._communicator.rank}: a message of rank {message.source} makes no sense:"
                f" {error.message}"
            ) from error
        self.figures.received += len(message.content)

    def _act(self, message: Message, client: _Client) -> None:
        if message.tag == LOOK_UP:
            self._look_up(message, client)
        elif message.tag == UPDATE:
            self._update(message, client)
        elif message.tag == READ:
            block, _ = decode_block(message.content)
            self._send(self.read(block), message.source)
        elif message.tag == WRITE:
            self._write(message.content)
            self._send(numpy.empty(0, self._tables.dtype), message.source)
        elif message.tag == SAVE:
            self._savings.append((message.source, self.save(message.content.tobytes())))
        elif message.tag == LOAD:
            answer = self.load(message.content.tobytes())
            self._send(numpy.frombuffer(answer, numpy.uint8).copy(), message.source)
        elif message.tag == DONE:
            client.done = True
            client.kept.clear()
        else:
            raise CommError(f"there is no message with tag {message.tag}")

    def _look_up(self, message: Message, client: _Client) -> None:
        look_up = decode_look_up(message.content)
        self._check(look_up)
        self._send(self.look_up(look_up.requests, look_up.rows), message.source)
        self.figures.look_ups += 1
        self.figures.ids += len(look_up.rows)
        for number in [number for number in client.kept if number < look_up.oldest]:
            del client.kept[number]
        if training := [(table, bags) for table, bags, trains in look_up.requests if trains]:
            client.kept[look_up.number] = training

    def _check(self, look_up: LookUp) -> None:
        """Make sure that rows exist."""
        held = self._tables.rows
        for table, _, _ in look_up.requests:
            if not 0 <= table < len(held):
                raise CommError(f"it looks up table {table}, and there are {len(held)}")
        asked = [(each.table, len(each.bags.rows)) for each in look_up.requests if len(each.bags.rows)]
        if not asked:
            return
        starts = list(itertools.accumulate((count for _, count in asked[:-1]), initial=0))
        # As a number without a sign a negative one is larger than all others.
        most = numpy.maximum.reduceat(look_up.rows.view(numpy.uint64), starts).tolist()
        for (table, count), start, largest in zip(asked, starts, most, strict=True):
            if largest >= held[table]:
                rows = look_up.rows[start : start + count]
                raise CommError(
                    f"it looks up rows {int(rows.min())} to {int(rows.max())} of table {table}, of which"
                    f" {held[table]} are here"
                )

    def _update(self, message: Message, client: _Client) -> None:
        update = decode_update(message.content, self._tables.dtype)
        gradients: list[tuple[int, Bags, numpy.ndarray]] = []
        at = 0
        for number in update.numbers:
            if number not in client.kept:
                raise CommError(f"it gives gradients of look-up {number}, which is not waited for")
            for table, bags in client.kept.pop(number):
                width = self._tables.widths[table]
                values = update.gradients[at : at + bags.count * width]
                at += bags.count * width
                if len(values) != bags.count * width:
                    raise CommError(f"its update has {len(update.gradients)} number(s), too few for its look-ups")
                gradients.append((table, bags, values.reshape(-1, width)))
        if at != len(update.gradients):
            raise CommError(f"its update has {len(update.gradients)} number(s), and its look-ups take {at}")
        self.update(gradients, update.rate, update.scale)
        self.figures.updates += 1

    def _write(self, content: numpy.ndarray) -> None:
        block, values = decode_block(content)
        size = block.count * self._tables.dtype.itemsize
        if values.nbytes != size:
            raise CommError(f"it writes {values.nbytes} bytes into {block.count} number(s) of {size}")
        self.write(block, values.view(self._tables.dtype))

    def _numbers(self, block: Block) -> numpy.ndarray:
        """Return a view of a block's numbers."""
        if not 0 <= block.table < len(self._tables.rows):
            raise CommError(f"it asks for table {block.table}, and there are {len(self._tables.rows)}")
        numbers = self._tables.numbers(block.table, block.what).reshape(-1)
        if not (0 <= block.start and 0 <= block.count <= len(numbers) - block.start):
            raise CommError(
                f"it asks for {block.count} number(s) from {block.start} on of table {block.table}, of which"
                f" {len(numbers)} are here"
            )
        return numbers[block.start : block.start + block.count]

    def _answer_saved(self) -> None:
        """Tell trainers what has been written by now."""
        for trainer, saving in list(self._savings):
            answer = saving.result()
            if answer is None:
                continue
            self._savings.remove((trainer, saving))
            if not self._clients[trainer].done:
                self._send(numpy.frombuffer(answer, numpy.uint8).copy(), trainer, SAVED)

    # -- sending -----------------------------------------------------------------------------------------

    def _send(self, values: numpy.ndarray, to: int, tag: int = REPLY) -> None:
        self._sendings.append((self._answers.start_send(values, to, tag), values))
        self.figures.sent += values.nbytes

    def _reclaim(self) -> None:
        """Let go of what has been sent."""
        if self._sendings:
            self._sendings = [(sending, values) for sending, values in self._sendings if not sending.is_done()]
