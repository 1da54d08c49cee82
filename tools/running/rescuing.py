"""The snapshot that the lowest surviving rank writes when MPI survives another rank's death (`--rescue`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mgcaffe.comm.supervision import status as statuses
from mgcaffe.comm.supervision.peers import Peers
from mgcaffe.comm.supervision.processes import is_alive
from mgcaffe.comm.supervision.standard_streams import say
from mgcaffe.comm.transport.communicator import Communicator, name_ranks
from mgcaffe.errors import EngineError, PeerFailure
from mgcaffe.solvers.solver import Solver


@contextmanager
def rescued(solver: Solver, communicator: Communicator, size: int) -> Iterator[None]:
    """Train inside; where other ranks' death ends it, a snapshot is written before the exception goes on.

    Args:
        solver: trains.
        communicator: the trainers, which are the first ranks.
        size: how many ranks there are, with the servers behind the trainers.

    Raises:
        PeerFailure: the one that came.
    """
    try:
        yield
    except PeerFailure as failure:
        # Among servers MPI may count other ranks than the world's.
        gone = frozenset(rank for rank in failure.failed if rank < communicator.size) | _gone_here(size)
        if gone and communicator.rank == min(set(range(communicator.size)) - gone):
            _rescue(solver, communicator.rank, gone)
        raise


def _gone_here(size: int) -> frozenset[int]:
    """Return the ranks of this host whose processes are gone; MPI may know of them a little later."""
    path = statuses.current().path
    places = Peers(path.parent if path is not None else None, size).places()
    return frozenset(rank for rank, place in places.items() if not is_alive(place.pid))


def _rescue(solver: Solver, rank: int, ranks_gone: frozenset[int]) -> None:
    statuses.doing("rescuing: writing a snapshot without the ranks that are gone")
    gone = f"{name_ranks(ranks_gone)} gone"
    try:
        path = solver.rescue()
    except (EngineError, OSError) as error:
        _say(f"rank {rank}: {gone}, and no snapshot could be written: {error}")
        return
    if path is None:
        _say(f"rank {rank}: {gone}, and no snapshot could be written")
    else:
        _say(f"rank {rank}: {gone}; iteration {solver.iteration} is saved (go on with --snapshot={path})")


def _say(text: str) -> None:
    # Rank 0, which alone logs, may be the one that is gone.
    say(f"warning: {text}")
