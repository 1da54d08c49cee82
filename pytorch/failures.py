"""Why another rank is gone: what a rank that ends by an exception leaves for the others to say.

A rank that raises ends its process, and the others' calls fail once its connections are closed. Before that it puts the
exception into the store that the ranks of a process group share, where the others look for it. Ranks of an MPI job are
ended instead, since the MPI library would wait for them for ever.
"""

from __future__ import annotations

import contextlib
import sys
import time
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from mgcaffe.comm import Communicator
from mgcaffe.comm.transport.mpi import MpiCommunicator
from mgcaffe.errors import EXIT_FAILED, PeerFailure, describe_exception

_KEY = "mgcaffe failure"
_PATIENCE_S = 1.0
_PAUSE_S = 0.05

_watched: weakref.WeakSet[Any] = weakref.WeakSet()


def note_failures_for(communicator: Communicator) -> None:
    """Have this process tell the other ranks by which exception it ends."""
    if not _watched:
        previous = sys.excepthook

        def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            previous(kind, error, trace)
            _tell(error)

        sys.excepthook = tell
    if communicator.size > 1:
        _watched.add(communicator)


@contextlib.contextmanager
def naming_causes(communicator: Communicator) -> Iterator[None]:
    """Add to a `PeerFailure` raised inside by which exception the other rank ended, where that is known."""
    try:
        yield
    except PeerFailure as failure:
        cause = _find_cause(_store_of(communicator))
        if cause is None:
            raise
        raise PeerFailure(f"rank {communicator.rank} cannot go on: {cause}", failed=failure.failed) from None


def _tell(error: BaseException) -> None:
    for communicator in list(_watched):
        store = _store_of(communicator)
        if store is None:
            if isinstance(communicator, MpiCommunicator):
                sys.stderr.flush()
                communicator.abort(EXIT_FAILED)
        elif not isinstance(error, PeerFailure):
            with contextlib.suppress(RuntimeError):  # the store's process is gone as well
                store.set(_KEY, f"rank {communicator.rank} ended with {describe_exception(error)}")


def _find_cause(store: Any) -> str | None:
    """Return what the rank that failed first has left; it may be about to."""
    if store is None:
        return None
    deadline = time.monotonic() + _PATIENCE_S
    try:
        while not store.check([_KEY]):
            if time.monotonic() > deadline:
                return None
            time.sleep(_PAUSE_S)
        return bytes(store.get(_KEY)).decode()
    except RuntimeError:
        return None


def _store_of(communicator: Any) -> Any:
    place = getattr(communicator, "place", None)
    return place.store if place is not None else None
