"""What a rank knows of the others' failures while it waits for them, and what it lets them know of its own.

The ranks of each process group have one `RankWatch` in each process. A rank that ends by an exception says so at once,
also one whose forward or backward pass was ended by one. Who waits for a rank that failed raises a `PeerFailure` with
the reason; ranks of an MPI job are ended, since MPI's calls wait for ever.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from mgcaffe.comm import Communicator
from mgcaffe.comm.supervision.rank_watch import TICK_S, RankWatch
from mgcaffe.comm.supervision.standard_streams import flush_quietly
from mgcaffe.comm.supervision.troubles import LEFT_S
from mgcaffe.comm.transport.mpi import MpiCommunicator
from mgcaffe.errors import EXIT_FAILED, PeerFailure, describe_exception
from mgcaffe.pytorch.event_log import LOG

PEER_TIMEOUT_S = 6.0
"""After so many seconds of silence a rank counts as dead, unless `peer_timeout` says otherwise.

Twelve signs of life that do not come. Calls of MPI and NCCL end up to 3.5 s later (`rank_watch.py`), which has to be
within ten seconds of the moment when a rank was stopped.
"""

_PATIENCE_S = LEFT_S + 2 * TICK_S
"""For so long after a call has failed its cause is waited for: until all ranks know of one that has ended in order."""

_TRANSPORTS = ("gloo", "mpi")

_watches: list[tuple[weakref.ref[Any], RankWatch]] = []
_watch_of: weakref.WeakKeyDictionary[Any, RankWatch] = weakref.WeakKeyDictionary()


def watch_ranks(communicator: Communicator, owner: Any, timeout_s: float) -> None:
    """Watch the ranks of a communicator, and let them know by which exception this process ends; a collective call.

    Args:
        communicator: the ranks; threads, or a rank alone, are not watched.
        owner: what all communicators among the same ranks have in common.
        timeout_s: after how many seconds of silence a rank counts as dead; 0: never. One value for all communicators
            of an owner, the last one.
    """
    if communicator.size == 1 or communicator.transport not in _TRANSPORTS:
        return
    if not _watches:
        _call_at_exceptions()
    for entry in _watches:
        if entry[0]() is None:
            entry[1].leave()
    _watches[:] = [entry for entry in _watches if entry[0]() is not None]
    watch = next((each for found, each in _watches if found() is owner), None)
    if watch is None:
        watch = RankWatch(communicator, timeout_s, LOG.warning)
        _watches.append((weakref.ref(owner), watch))
        if watch.unwatched and communicator.rank == 0:
            listed = ", ".join(map(str, watch.unwatched))
            LOG.warning("ranks that cannot connect to rank 0, and so are not noticed if they hang: %s", listed)
    watch.timeout_s = timeout_s
    _watch_of[communicator] = watch
    place = getattr(communicator, "place", None)
    if place is not None:
        place.alarm.set(watch.check)


@contextlib.contextmanager
def naming_causes(communicator: Communicator) -> Iterator[None]:
    """Communicate with all other ranks; a `PeerFailure` raised inside says what ended the other rank, where known."""
    watch = _watch_of.get(communicator)
    if watch is None:
        yield
        return
    watch.begin_wait()
    try:
        yield
    except PeerFailure:
        watch.await_cause(_PATIENCE_S)
        raise
    finally:
        watch.end_wait()


def note_pass(communicator: Communicator) -> None:
    """Take note that a forward pass begins: an exception that ended the one before was not the end."""
    watch = _watch_of.get(communicator)
    if watch is not None:
        watch.note_raised("")


def note_exception(communicator: Communicator, error: BaseException | None, where: str) -> None:
    """Let the others know that an exception ended a pass; None: an exception that only autograd knows."""
    watch = _watch_of.get(communicator)
    # Checkpointing leaves a part that it computes again by an exception, as soon as it has what it needs.
    if type(error).__name__ == "_StopRecomputationError":
        return
    if watch is not None and not isinstance(error, PeerFailure):
        what = describe_exception(error).partition("\n")[0] if error is not None else "an exception"
        watch.note_raised(f"{what} in its {where} pass")


def _call_at_exceptions() -> None:
    previous = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        previous(kind, error, trace)
        _tell(error)

    sys.excepthook = tell


def _tell(error: BaseException) -> None:
    for _, watch in _watches:
        watch.note_end(describe_exception(error), follows=isinstance(error, PeerFailure))
    for communicator in list(_watch_of):
        if isinstance(communicator, MpiCommunicator):
            flush_quietly()
            communicator.abort(EXIT_FAILED)
