"""Sums within each host first, then over one rank of each host, then broadcasts the sum within the hosts.

Where several ranks share a host's link, a flat all-reduce sends their gradients over it several times; this way
each host's sum crosses it once. The sum's order is another one than that of a flat all-reduce, so on more than
two ranks its last bits are too; they are equal on all ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy

from mgcaffe.comm.exchange.sums.base import Sum
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.errors import CommError


def number_hosts(communicator: Communicator, hosts: Sequence[str] | None = None) -> list[int]:
    """Return the number of each rank's host, by rank; hosts count in the order of their first ranks.

    Args:
        communicator: the ranks; a collective call where `hosts` is None.
        hosts: each rank's host; None: as the ranks say.

    Raises:
        CommError: another number of hosts than of ranks.
    """
    named = list(hosts) if hosts is not None else communicator.allgather(communicator.host)
    if len(named) != communicator.size:
        raise CommError(f"{len(named)} hosts are named for {communicator.size} ranks")
    order = list(dict.fromkeys(named))
    return [order.index(name) for name in named]


class HierarchicalSum:
    """See `Sum`; made by all ranks together.

    Args:
        communicator: the ranks.
        hosts: the number of each rank's host, by rank.
        between: makes the sum over the ranks that stand for their hosts.
    """

    def __init__(
        self, communicator: Communicator, hosts: Sequence[int], between: Callable[[Communicator], Sum]
    ) -> None:
        local = communicator.split(hosts[communicator.rank])
        assert local is not None
        self._local = local
        leaders = communicator.split(0 if local.rank == 0 else None)
        self._between = between(leaders) if leaders is not None else None
        self.channels = [local, *(self._between.channels if self._between is not None else [])]

    def __call__(self, offset: int, part: numpy.ndarray) -> None:
        """Reduce to the host's first rank, sum over the hosts, broadcast."""
        if self._local.size > 1:
            self._local.reduce(part, 0)
        if self._between is not None:
            self._between(offset, part)
        if self._local.size > 1:
            self._local.broadcast(part, 0)
