"""Whole tables, and files of them, on embedding servers, as the thread that communicates asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy

from mgcaffe.comm.tables.look_ups import LookUps
from mgcaffe.comm.tables.messages import LOAD, READ, REPLY, SAVE, SAVED, WRITE, Block, encode_block
from mgcaffe.comm.tables.pending import PendingSave
from mgcaffe.comm.tables.server_link import ServerLink

_BYTES_AT_ONCE = 64 << 20


class TableRequests:
    """Reads and writes tables, and has servers write and read files; see the methods of `TableClient`.

    Args:
        link: to the servers.
        look_ups: whose answers come first where an answer is waited for.
    """

    def __init__(self, link: ServerLink, look_ups: LookUps) -> None:
        self._link = link
        self._look_ups = look_ups
        self._saves: list[PendingSave] = []

    @property
    def are_saving(self) -> bool:
        """Whether servers are writing files."""
        return bool(self._saves)

    def read(self, table: int, what: int, into: numpy.ndarray) -> None:
        """Fill an array by a table's values or a history."""
        self._look_ups.receive_all()
        flat = into.reshape(-1)
        for server, block, at in self._blocks(table, what, flat.size // len(into), 0, flat.size):
            if server == self._link.rank:
                assert self._link.own is not None
                flat[at : at + block.count] = self._link.own.read(block)
                continue
            self._link.send(encode_block(block), server, READ)
            self._link.answers.receive(flat[at : at + block.count], server, REPLY)

    def write(self, table: int, what: int, width: int, start: int, values: numpy.ndarray) -> None:
        """Replace values of a table or a history."""
        self._look_ups.receive_all()
        for server, block, at in self._blocks(table, what, width, start, len(values)):
            part = numpy.ascontiguousarray(values[at : at + block.count], self._link.dtype)
            if server == self._link.rank:
                assert self._link.own is not None
                self._link.own.write(block, part)
                continue
            self._link.send(encode_block(block, part), server, WRITE)
            self._link.answers.receive(numpy.empty(0, self._link.dtype), server, REPLY)

    def settle(self) -> None:
        """Read nothing from each server, which answers after the updates that it was given before."""
        self._look_ups.receive_all()
        asked = [(server, min(self._link.held[server])) for server in self._link.others if self._link.held[server]]
        for server, table in asked:
            self._link.send(encode_block(Block(table, 0, 0, 0)), server, READ)
        for server, _ in asked:
            self._link.answers.receive(numpy.empty(0, self._link.dtype), server, REPLY)

    def save(self, pending: PendingSave, orders: Mapping[int, bytes]) -> None:
        """Let servers begin to write their rows."""
        for server, order in orders.items():
            if server == self._link.rank:
                assert self._link.own is not None
                pending.own = self._link.own.save(order)
                continue
            self._link.send(numpy.frombuffer(order, numpy.uint8).copy(), server, SAVE)
        self._saves.append(pending)

    def load(self, orders: Mapping[int, bytes], answers: dict[int, bytes]) -> None:
        """Let servers read rows from files, and collect their answers."""
        self._look_ups.receive_all()
        others = [server for server in self._link.others if server in orders]
        for server in others:
            self._link.send(numpy.frombuffer(orders[server], numpy.uint8).copy(), server, LOAD)
        if self._link.rank in orders:
            assert self._link.own is not None
            answers[self._link.rank] = self._link.own.load(orders[self._link.rank])
        for server in others:
            message = self._link.answers.receive_any(server, REPLY)
            assert message is not None
            answers[server] = message.content.tobytes()

    def receive_saved(self) -> None:
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
        if server == self._link.rank:
            return None if pending.own is None else pending.own.result()
        message = self._link.answers.receive_any(server, SAVED, 0)
        return None if message is None else message.content.tobytes()

    def _blocks(self, table: int, what: int, width: int, start: int, count: int) -> Iterator[tuple[int, Block, int]]:
        """Yield (server, its block, where that begins in what is read or written), in pieces that can be copied."""
        at_once = _BYTES_AT_ONCE // self._link.dtype.itemsize
        for server, held in self._link.held.items():
            if table not in held:
                continue
            first, last = held[table].first * width, held[table].last * width
            for begin in range(max(first, start), min(last, start + count), at_once):
                end = min(last, start + count, begin + at_once)
                yield server, Block(table, what, begin - first, end - begin), begin - start
