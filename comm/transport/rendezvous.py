"""How ranks find each other without MPI: a store of torch.distributed that all of them can reach.

Three ways lead to one: the environment that torchrun sets, an existing process group, and a communicator by which
the ranks can already talk (MPI), whose rank 0 then opens the store.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from mgcaffe.comm.transport.alarm import Alarm
from mgcaffe.errors import CommError

if TYPE_CHECKING:
    from mgcaffe.comm.transport.communicator import Communicator

_CONNECT_S = 300.0

_uses: Counter[str] = Counter()
_torch: Any = dist
"""The same module for names that its types do not list."""


@dataclass(frozen=True)
class StorePlace:
    """A rank among those that share a store.

    Attributes:
        store: the store.
        rank, size: the rank, and how many there are.
        name: of a part of the ranks, among all parts; empty for the ranks that the store was made for.
        members: who they are among those, by rank; None: all of them.
        alarm: what has calls of groups at this place, and at its parts, give up waiting.
    """

    store: Any
    rank: int
    size: int
    name: str = ""
    members: tuple[int, ...] | None = None
    alarm: Alarm = field(default_factory=Alarm, compare=False)

    def part(self, name: str, members: Sequence[int]) -> StorePlace:
        """Return this rank's place among some of the ranks, with keys of their own; alike on all of these."""
        store, rank = _torch.PrefixStore(name, self.store), members.index(self.rank)
        return StorePlace(
            store, rank, len(members), f"{self.name}/{name}", tuple(map(self.number, members)), self.alarm
        )

    def number(self, rank: int) -> int:
        """Return a rank's number among those that the store was made for."""
        return rank if self.members is None else self.members[rank]


def place_of_group(group: dist.ProcessGroup | None) -> StorePlace:
    """Return the place of this rank in a process group, with keys that nobody else uses; alike on all its ranks.

    Raises:
        CommError: torch.distributed was not initialised, or this rank is no member of the group.
    """
    if not dist.is_initialized():
        raise CommError(
            "torch.distributed is not initialised, so there is no process group",
            hint="call torch.distributed.init_process_group() first, under torchrun",
        )
    rank = dist.get_rank(group)
    if rank < 0:
        raise CommError("this rank is no member of the process group")
    whole: Any = dist.group.WORLD if group is None else group
    store = dist.distributed_c10d._get_process_group_store(whole)
    name = str(whole.group_name)
    _uses[name] += 1
    return StorePlace(_torch.PrefixStore(f"mgcaffe {_uses[name]}", store), rank, dist.get_world_size(group))


def place_of_environment() -> StorePlace:
    """Return the place of this rank by the variables of torchrun.

    Raises:
        CommError: MASTER_ADDR or another variable is missing, or the store cannot be reached.
    """
    try:
        store, rank, size = next(_torch.rendezvous("env://", timeout=timedelta(seconds=_CONNECT_S)))
    except (RuntimeError, ValueError) as error:
        reason = str(error).split("\n")[0]
        raise CommError(
            f"the ranks cannot find each other by torchrun's variables: {reason}",
            hint="start them by `torchrun --nproc_per_node=N --no-python engine ...`",
        ) from None
    return StorePlace(_torch.PrefixStore("mgcaffe", store), rank, size)


def place_through(ranks: Communicator) -> StorePlace:
    """Return the place of this rank in a store that rank 0 opens and tells the others about; a collective call.

    On other hosts rank 0's host is known by its MASTER_ADDR, where that is set, or else by its name.

    Raises:
        CommError: the store cannot be opened or reached.
    """
    try:
        server = None
        if ranks.rank == 0:
            server = _torch.TCPStore("localhost", 0, ranks.size, is_master=True, wait_for_workers=False)
        port, host = ranks.broadcast_object(
            (server.port if server is not None else 0, os.environ.get("MASTER_ADDR") or ranks.host)
        )
        if ranks.local_size == ranks.size:
            host = "localhost"
        store = server or _torch.TCPStore(
            host, port, ranks.size, is_master=False, timeout=timedelta(seconds=_CONNECT_S), wait_for_workers=False
        )
    except RuntimeError as error:
        reason = str(error).split("\n")[0]
        raise CommError(f"rank {ranks.rank} cannot reach the store of rank 0 for torch.distributed: {reason}") from None
    return StorePlace(_torch.PrefixStore("mgcaffe", store), ranks.rank, ranks.size)
