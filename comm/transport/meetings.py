"""Meetings of ranks through the store that they share: messages are exchanged if all ranks come within some time.

No call of gloo takes part, so that ranks can still meet where one of them has left such a call unfinished.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from mgcaffe.comm.transport.rendezvous import StorePlace

_GIVEN_UP = b"-"
_CAME = b"+"
_LEAVE_S = 2.0
_MAX_PAUSE_S = 0.02


class Meetings:
    """The meetings of a group of ranks, which all of them count alike.

    Args:
        place: the ranks and their store.
    """

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._numbers = itertools.count()

    def meet(self, message: bytes, patience_s: float | None) -> list[bytes] | None:
        """Exchange messages of any content; a collective call.

        Args:
            message: this rank's.
            patience_s: how long to wait for the other ranks, in seconds; None: for ever.

        Returns:
            The messages by rank; None if a rank has given up waiting, this one or another.

        Raises:
            RuntimeError: the store's own, where it is gone.
        """
        store, number = self._place.store, next(self._numbers)
        keys = [f"meeting {number} of {rank}" for rank in range(self._place.size)]
        own = keys[self._place.rank]
        store.set(own, _CAME + message)
        if not poll(lambda: store.check(keys), patience_s):
            store.set(own, _GIVEN_UP)
            return None
        messages = [bytes(store.get(key)) for key in keys]
        store.add(f"meeting {number}", 1)
        if self._place.rank == 0:
            # The store may be in this process, which may end after the meeting.
            poll(lambda: store.add(f"meeting {number}", 0) == self._place.size, _LEAVE_S)
        return None if _GIVEN_UP in messages else [each[len(_CAME) :] for each in messages]


def poll(test: Callable[[], bool], patience_s: float | None) -> bool:
    """Call a test until it returns True; False if it takes longer than `patience_s` (None: for ever)."""
    began = time.monotonic()
    while not test():
        waited = time.monotonic() - began
        if patience_s is not None and waited > patience_s:
            return False
        time.sleep(min(_MAX_PAUSE_S, 1e-3 + waited / 100))
    return True
