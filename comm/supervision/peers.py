"""The ranks of a job as seen from one host: who runs, who has exited without an error message, who is stopped.

The kernel tells of a death at once through a process's file descriptor (pidfd); where there is none, the
processes are looked at a few times a second.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import time
from collections.abc import Iterable
from pathlib import Path

from mgcaffe.comm.supervision.processes import is_alive, process_state
from mgcaffe.comm.supervision.record_folders import read_places
from mgcaffe.comm.supervision.status import RUNNING, Place

_LOOK_EVERY_S = 0.25


class Peers:
    """Watches the ranks of one folder of records that run on this host.

    Args:
        folder: where their records lie.
        size: how many ranks the job has.
    """

    def __init__(self, folder: Path | None, size: int) -> None:
        self._folder = folder
        self._size = size
        self._host = socket.gethostname()
        self._poll = select.poll()
        self._descriptors: dict[int, int] = {}
        self._watched: dict[int, int] = {}
        self._gone: set[int] = set()

    def places(self) -> dict[int, Place]:
        """Return the records of this host's ranks."""
        places = sorted(read_places(self._folder).items())
        return {rank: place for rank, place in places if rank < self._size and place.host == self._host}

    def add_descriptor(self, descriptor: int) -> None:
        """Have `wait` return early when something can be read from a descriptor."""
        self._poll.register(descriptor, select.POLLIN)

    def wait(self, seconds: float) -> list[Place]:
        """Wait, and return the last records of ranks that have gone meanwhile, in the order seen.

        It returns early when a rank goes. A rank is returned once, whether or not it has said that it ends.
        """
        deadline = time.monotonic() + seconds
        while True:
            self._discover()
            left = deadline - time.monotonic()
            events = self._poll.poll(max(0.0, min(left, _LOOK_EVERY_S)) * 1000)
            ready = {descriptor for descriptor, _ in events}
            gone = [rank for rank, descriptor in self._descriptors.items() if descriptor in ready]
            gone += [rank for rank, pid in self._watched.items() if rank not in self._descriptors and not is_alive(pid)]
            if gone or ready or left <= 0:
                return self._forget(gone)

    def running(self) -> list[int]:
        """Return the ranks of this host that live and have not ended."""
        places = self.places()
        return [rank for rank, place in places.items() if place.state == RUNNING and is_alive(place.pid)]

    def stopped(self) -> list[int]:
        """Return the ranks of this host that a signal has stopped."""
        return [rank for rank, place in self.places().items() if process_state(place.pid) in ("T", "t")]

    def close(self) -> None:
        """Give the descriptors back."""
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()

    def _discover(self) -> None:
        for rank, place in self.places().items():
            if rank in self._watched or rank in self._gone or place.pid == os.getpid():
                continue
            self._watched[rank] = place.pid
            with contextlib.suppress(OSError, AttributeError):
                descriptor = os.pidfd_open(place.pid)
                self._descriptors[rank] = descriptor
                self._poll.register(descriptor, select.POLLIN)

    def _forget(self, ranks: Iterable[int]) -> list[Place]:
        places = self.places()
        for rank in ranks:
            self._gone.add(rank)
            self._watched.pop(rank, None)
            descriptor = self._descriptors.pop(rank, None)
            if descriptor is not None:
                self._poll.unregister(descriptor)
                os.close(descriptor)
        return [places[rank] for rank in ranks if rank in places]
