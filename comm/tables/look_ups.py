"""Look-ups and updates on embedding servers, as the thread that communicates makes them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import numpy

from mgcaffe.comm.tables.messages import LOOK_UP, REPLY, UPDATE, LookUp, Request, encode_look_up, encode_update
from mgcaffe.comm.tables.pending import PendingLookUp, Share, share_of
from mgcaffe.comm.tables.server_link import ServerLink


class LookUps:
    """Sends look-ups and updates, and receives answers, which come from each server in the order of the look-ups.

    Args:
        link: to the servers.
    """

    def __init__(self, link: ServerLink) -> None:
        self._link = link
        self._unanswered: dict[int, deque[PendingLookUp]] = {server: deque() for server in link.held}

    @property
    def are_open(self) -> bool:
        """Whether answers are still to come."""
        return any(self._unanswered.values())

    def ask(self, pending: PendingLookUp, oldest: int) -> None:
        """Send a look-up to the servers that hold rows of it; `oldest` is the smallest number that may be updated."""
        mine: list[Request] = []
        for server, held in self._link.held.items():
            shares = [
                share_of(place, bags, held[table], self._link.shapes[table])
                for place, (table, bags, _) in enumerate(pending.wanted)
                if table in held
            ]
            if not shares:
                continue
            pending.shares[server] = shares
            requests = [pending.wanted[each.place]._replace(bags=each.bags) for each in shares]
            if server == self._link.rank:
                mine = requests
                continue
            self._link.send(encode_look_up(LookUp(pending.number, oldest, requests)), server, LOOK_UP)
            self._unanswered[server].append(pending)
            pending.missing[server] = numpy.empty(sum(each.size for each in shares), self._link.dtype)
        if mine:  # while the others look theirs up
            assert self._link.own is not None
            rows = numpy.concatenate([each.bags.rows for each in mine])
            self._put(pending, self._link.rank, self._link.own.look_up(mine, rows))
        if not pending.missing:
            self._complete(pending)

    def give(
        self, gradients: Sequence[tuple[PendingLookUp, Sequence[numpy.ndarray | None]]], rate: float, scale: float
    ) -> None:
        """Send the gradients of look-ups to the servers that answered them; see `TableClient.update`."""
        for server in self._link.others:
            numbers: list[int] = []
            pieces: list[numpy.ndarray] = []
            for look_up, given in gradients:
                shares = [each for each in look_up.shares.get(server, ()) if look_up.wanted[each.place].trains]
                if shares:
                    numbers.append(look_up.number)
                    pieces += [self._gradient(share, given[share.place]) for share in shares]
            if numbers:
                self._link.send(encode_update(numbers, rate, scale, pieces, self._link.dtype), server, UPDATE)

        mine = [
            (table, share.bags, self._gradient(share, given[share.place]).reshape(-1, self._link.shapes[table][1]))
            for look_up, given in gradients
            for share in look_up.shares.get(self._link.rank, ())
            for table, _, trains in [look_up.wanted[share.place]]
            if trains
        ]
        if mine:
            assert self._link.own is not None
            self._link.own.update(mine, rate, scale)

    def receive(self) -> bool:
        """Receive the answers that have come; return whether any has."""
        came = False
        for server, waiting in self._unanswered.items():
            while waiting and self._link.answers.probe(server, REPLY, 0) is not None:
                self._receive(waiting.popleft(), server)
                came = True
        return came

    def receive_all(self) -> None:
        """Receive all that is still to come."""
        for server, waiting in self._unanswered.items():
            while waiting:
                self._receive(waiting.popleft(), server)

    def _receive(self, pending: PendingLookUp, server: int) -> None:
        answer = pending.missing.pop(server)
        self._link.answers.receive(answer, server, REPLY)
        self._link.figures.received += answer.nbytes
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
        vectors = answer.reshape(-1, self._link.shapes[table][1])
        if share.bag_numbers is None:
            pending.vectors[share.place] = vectors
            return
        if not pending.vectors[share.place].ndim == 2:
            pending.vectors[share.place] = numpy.zeros((bags.count, vectors.shape[1]), self._link.dtype)
        pending.vectors[share.place][share.bag_numbers] += vectors

    def _complete(self, pending: PendingLookUp) -> None:
        self._link.figures.look_ups += 1
        self._link.figures.latency_s += time.perf_counter() - pending.asked_at
        pending.answered.set()

    def _gradient(self, share: Share, values: numpy.ndarray | None) -> numpy.ndarray:
        """Return the gradient of what a share has answered; zeros where none was given."""
        if values is None:
            return numpy.zeros(share.size, self._link.dtype)
        return values if share.bag_numbers is None else values[share.bag_numbers]
