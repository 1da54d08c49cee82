"""An embedding server: holds rows of tables once, and answers the look-ups of many trainers at once.

One thread takes message after message from whoever sends one. What one trainer sends is answered in its order, so a
trainer whose look-up follows its update sees the updated rows. Nothing waits for a trainer that is slow to receive.

Where a trainer's death is tolerated (`Communicator.tolerate`) the server forgets it: it keeps the updates that it has
made by then, and drops what else the trainer has sent, as well as answers that are on their way to it.

A trainer can be a server as well, on a thread beside its training. It uses the rows that it holds itself without a
message, between two messages of others.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy

from mgcaffe.comm.supervision import status
from mgcaffe.comm.tables.figures import ServerFigures
from mgcaffe.comm.tables.held_tables import HeldTables, Saving
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
    decode_block,
    decode_look_up,
    decode_update,
)
from mgcaffe.comm.tables.shared_rows import SharedRows
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.transport.messages import Message, Sending
from mgcaffe.errors import CommError

_PATIENCE_S = 0.1
_POLL_S = 100e-6


@dataclass
class _Client:
    """What a server knows of a trainer: the ids that it keeps, by the look-up's number; whether it is done, or dead."""

    kept: dict[int, list[tuple[int, Bags]]] = field(default_factory=dict)
    done: bool = False
    lost: bool = False


class TableServer:
    """Serves trainers until all of them are done.

    Args:
        communicator: of trainers and servers, for this alone.
        trainers: the ranks of the trainers that send messages.
        tables: what is served.
        answers: the same ranks, for what is answered, where this rank is a trainer as well, whose own requests to other
            ones go by `communicator`; None: this rank does nothing else, and answers go there too.

    Attributes:
        figures: what it has done so far, for others.
        rows: those that it holds, which other threads of this process may use between two messages.
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
        self.rows = SharedRows(tables)
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
            self._send(self.rows.read(block), message.source)
        elif message.tag == WRITE:
            self._write(message.content)
            self._send(numpy.empty(0, self.rows.dtype), message.source)
        elif message.tag == SAVE:
            self._savings.append((message.source, self.rows.save(message.content.tobytes())))
        elif message.tag == LOAD:
            answer = self.rows.load(message.content.tobytes())
            self._send(numpy.frombuffer(answer, numpy.uint8).copy(), message.source)
        elif message.tag == DONE:
            client.done = True
            client.kept.clear()
        else:
            raise CommError(f"there is no message with tag {message.tag}")

    def _look_up(self, message: Message, client: _Client) -> None:
        look_up = decode_look_up(message.content)
        self.rows.check(look_up)
        self._send(self.rows.look_up(look_up.requests, look_up.rows), message.source)
        self.figures.look_ups += 1
        self.figures.ids += len(look_up.rows)
        for number in [number for number in client.kept if number < look_up.oldest]:
            del client.kept[number]
        if training := [(table, bags) for table, bags, trains in look_up.requests if trains]:
            client.kept[look_up.number] = training

    def _update(self, message: Message, client: _Client) -> None:
        update = decode_update(message.content, self.rows.dtype)
        gradients: list[tuple[int, Bags, numpy.ndarray]] = []
        at = 0
        for number in update.numbers:
            if number not in client.kept:
                raise CommError(f"it gives gradients of look-up {number}, which is not waited for")
            for table, bags in client.kept.pop(number):
                width = self.rows.widths[table]
                values = update.gradients[at : at + bags.count * width]
                at += bags.count * width
                if len(values) != bags.count * width:
                    raise CommError(f"its update has {len(update.gradients)} number(s), too few for its look-ups")
                gradients.append((table, bags, values.reshape(-1, width)))
        if at != len(update.gradients):
            raise CommError(f"its update has {len(update.gradients)} number(s), and its look-ups take {at}")
        self.rows.update(gradients, update.rate, update.scale)
        self.figures.updates += 1

    def _write(self, content: numpy.ndarray) -> None:
        block, values = decode_block(content)
        size = block.count * self.rows.dtype.itemsize
        if values.nbytes != size:
            raise CommError(f"it writes {values.nbytes} bytes into {block.count} number(s) of {size}")
        self.rows.write(block, values.view(self.rows.dtype))

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
