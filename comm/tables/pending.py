"""What a trainer waits for of the servers that hold tables: answers to look-ups, and files that they write."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy

from mgcaffe.comm.tables.assignment import RowRange
from mgcaffe.comm.tables.held_tables import Saving
from mgcaffe.comm.tables.messages import Bags, Request


class Client(Protocol):
    """What asks for it (`TableClient`)."""

    def wait_for(self, event: threading.Event) -> None:
        """Wait for something that the thread that communicates does.

        Raises:
            Exception: what went wrong there.
        """

    def waited(self, seconds: float) -> None:
        """Count the time that a thread has waited for an answer."""


class PendingLookUp:
    """The look-ups of one batch; see `TableClient.look_up`.

    Attributes:
        wanted: what is looked up.
    """

    def __init__(self, client: Client, wanted: Sequence[Request], number: int) -> None:
        self.wanted = wanted
        self.number = number
        self.asked_at = time.perf_counter()
        self.shares: dict[int, list[Share]] = {}
        self.missing: dict[int, numpy.ndarray] = {}
        self.vectors: list[numpy.ndarray] = [numpy.empty(0)] * len(wanted)
        self.answered = threading.Event()
        self._client = client

    def wait(self) -> list[numpy.ndarray]:
        """Return the sums over the bags, for each that was wanted: bags x width.

        Raises:
            Exception: what went wrong on the thread that communicates.
        """
        began = time.perf_counter()
        self._client.wait_for(self.answered)
        self._client.waited(time.perf_counter() - began)
        return self.vectors


@dataclass
class Share:
    """What one server answers of a look-up in one part.

    Attributes:
        place: which of what was wanted this is of.
        bags: those in the server's rows.
        bag_numbers: which of the wanted bags they are; None: all.
        size: of the answer, in numbers.
    """

    place: int
    bags: Bags
    bag_numbers: numpy.ndarray | None
    size: int


class PendingSave:
    """Files that servers write; see `TableClient.save`."""

    def __init__(self, client: Client, servers: Iterable[int]) -> None:
        self.missing = set(servers)
        self.answers: dict[int, bytes] = {}
        self.own: Saving | None = None  # of this rank, where it is a server itself
        self.done = threading.Event()
        self._client = client

    def wait(self) -> dict[int, bytes]:
        """Return what each server has answered, once all have; any thread may call it.

        Raises:
            Exception: what went wrong on the thread that communicates.
        """
        self._client.wait_for(self.done)
        return self.answers


def share_of(place: int, bags: Bags, held: RowRange, shape: tuple[int, int]) -> Share:
    """Return what of a table's bags lies in a server's rows.

    Args:
        place: which of what was wanted the bags are of.
        bags: with rows of the whole table.
        held: the server's rows.
        shape: the table's rows and width.
    """
    rows, width = shape
    if held.last - held.first == rows:
        return Share(place, bags, None, bags.count * width)
    mine = (bags.rows >= held.first) & (bags.rows < held.last)
    if bags.lengths is None:
        bag_numbers, lengths = numpy.flatnonzero(mine), None
    else:
        of_ids = numpy.repeat(numpy.arange(bags.count), bags.lengths)[mine]
        counts = numpy.bincount(of_ids, minlength=bags.count)
        bag_numbers = numpy.flatnonzero(counts)
        lengths = counts[bag_numbers].astype(numpy.int64, copy=False)
    local = Bags(bags.rows[mine] - held.first, lengths)
    return Share(place, local, bag_numbers, len(bag_numbers) * width)
