"""Who is what in a job: first trainers, behind them embedding servers, at the end synchronization servers.

    mpirun -n 5 engine train dlrm.prototxt --embedding_servers=1 --sync_servers=1

makes ranks 0 to 2 trainers, rank 3 an embedding server and rank 4 a synchronization server.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mgcaffe.comm.transport.communicator import Communicator, name_ranks
from mgcaffe.errors import UsageError


class Role(Enum):
    """What a rank does; the value is its name for messages."""

    TRAINER = "trainer"
    EMBEDDING_SERVER = "embedding server"
    SYNC_SERVER = "synchronization server"


@dataclass(frozen=True)
class Roles:
    """How many ranks have each role; `assign_roles` checks that they fit.

    Attributes:
        trainers, embedding_servers, sync_servers: how many there are.
    """

    trainers: int
    embedding_servers: int = 0
    sync_servers: int = 0

    @property
    def size(self) -> int:
        """The world size."""
        return self.trainers + self.embedding_servers + self.sync_servers

    @property
    def has_servers(self) -> bool:
        """Whether there are other ranks than trainers."""
        return self.size > self.trainers

    def ranks(self, role: Role) -> range:
        """Return the ranks of a role."""
        first_sync_server = self.trainers + self.embedding_servers
        if role is Role.TRAINER:
            return range(self.trainers)
        if role is Role.EMBEDDING_SERVER:
            return range(self.trainers, first_sync_server)
        return range(first_sync_server, self.size)

    def of(self, rank: int) -> Role:
        """Return what a rank is."""
        return next(role for role in Role if rank in self.ranks(role))

    def describe(self) -> str:
        """Return `2 trainers (ranks 0-1), 1 synchronization server (rank 2)`."""
        counts = [(role, self.ranks(role)) for role in Role if self.ranks(role)]
        return ", ".join(
            f"{len(ranks)} {role.value}{'s' * (len(ranks) != 1)} ({name_ranks(ranks)})" for role, ranks in counts
        )


def assign_roles(size: int, embedding_servers: int = 0, sync_servers: int = 0) -> Roles:
    """Return the roles of a job.

    Args:
        size: the world size.
        embedding_servers, sync_servers: how many of the ranks are servers.

    Raises:
        UsageError: they leave no trainer, or a number is negative.
    """
    asked = {"embedding_servers": embedding_servers, "sync_servers": sync_servers}
    for name, count in asked.items():
        if count < 0:
            raise UsageError(f"{name} is {count}, and must be 0 or more")
    servers = sum(asked.values())
    if servers and servers >= size:
        flags = " and ".join(f"--{name}={count}" for name, count in asked.items() if count)
        raise UsageError(
            f"{flags} of {size} rank{'s' * (size != 1)}: no trainer would be left",
            hint=f"start at least {servers + 1} ranks: mpirun -n {servers + 1} engine train ...",
        )
    return Roles(size - servers, embedding_servers, sync_servers)


@dataclass(frozen=True)
class RoleGroups:
    """The communicators that ranks with roles use; each is used by one thread.

    Attributes:
        roles: who is what.
        trainers: the trainers; None on servers.
        embedding: the trainers and the embedding servers behind them; None where there are none, and on other servers.
        sync: likewise with the synchronization servers.
        control: all ranks, for `Control`; None where all are trainers.
    """

    roles: Roles
    trainers: Communicator | None
    embedding: Communicator | None = None
    sync: Communicator | None = None
    control: Communicator | None = None


def make_groups(world: Communicator, roles: Roles) -> RoleGroups:
    """Divide the ranks of a job by their roles; collective.

    Args:
        world: all ranks. Where all are trainers it is their communicator.
        roles: the same on all ranks.
    """
    if not roles.has_servers:
        return RoleGroups(roles, world)
    mine = roles.of(world.rank)

    def group(*members: Role) -> Communicator | None:
        if len(members) > 1 and not roles.ranks(members[-1]):
            return None
        return world.split(0 if mine in members else None)

    return RoleGroups(
        roles,
        trainers=group(Role.TRAINER),
        embedding=group(Role.TRAINER, Role.EMBEDDING_SERVER),
        sync=group(Role.TRAINER, Role.SYNC_SERVER),
        control=world.duplicate(),
    )
