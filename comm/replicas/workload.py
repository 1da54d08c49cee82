"""What the prediction of replicas kept together starts from: how a trainer trains by itself, and what a round takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mgcaffe.comm.planning.networks import Network
from mgcaffe.comm.replicas.groups import radices
from mgcaffe.errors import CommError

FOREGROUND = ("ma", "bmuf", "easgd", "ds_sync")
BACKGROUND = ("shadow_ma", "shadow_bmuf", "shadow_easgd")
SYNCS = ("none", *FOREGROUND, *BACKGROUND)
"""What `--sync` can be, but for `gradients`, which `simulator.simulate` predicts."""


@dataclass(frozen=True)
class Training:
    """How a trainer trains where it waits for nobody.

    Attributes:
        iteration_s: seconds of one worker's iteration.
        batch: examples in it.
        threads: Hogwild workers of a trainer, each with a core of its own.
        spread: standard deviation of the times of iterations over their mean, from 0 to 1; they have a gamma
            distribution and do not depend on each other.
        straggler_s: seconds that every iteration of one of the trainers takes longer.

    Raises:
        CommError: a value out of its range.
    """

    iteration_s: float
    batch: int
    threads: int = 1
    spread: float = 0.0
    straggler_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.iteration_s > 0 or self.batch < 1 or self.threads < 1 or self.straggler_s < 0:
            raise CommError(f"{self} describes no training")
        if not 0 <= self.spread <= 1:
            raise CommError(f"iterations cannot spread by {self.spread:g} of their mean", hint="give 0 to 1")

    @property
    def varies(self) -> bool:
        """Whether trainers differ from each other at any moment."""
        return self.spread > 0 or self.straggler_s > 0

    @property
    def step_s(self) -> float:
        """Seconds from one iteration of a trainer, of whichever worker, to its next."""
        return self.iteration_s / self.threads

    @property
    def straggler_step_s(self) -> float:
        """The same for the straggler."""
        return (self.iteration_s + self.straggler_s) / self.threads

    def iterations_per_s(self, trainers: int) -> float:
        """Return the iterations of all trainers per second."""
        return (trainers - 1) / self.step_s + 1 / self.straggler_step_s


@dataclass(frozen=True)
class CollectiveRounds:
    """Rounds in groups that average at the same time, each group as soon as all its trainers have come.

    Attributes:
        sizes: how many trainers a group has, for each round of a period; one number: all trainers in each round.
        seconds: what the round takes from then on, likewise.
    """

    sizes: Sequence[int]
    seconds: Sequence[float]

    def mean_s(self, trainers: int) -> float:
        """Return the seconds of a round from when all have come, the mean over a period."""
        return sum(self.seconds) / len(self.seconds)


@dataclass(frozen=True)
class ServedRounds:
    """Rounds of one trainer with the synchronization servers, which answer one trainer after the other.

    Attributes:
        exchange_s: seconds of a round where no other trainer is served.
        service_s: seconds of it in which the servers' links are busy.
        server_bytes: what each server sends and receives for it.
    """

    exchange_s: float
    service_s: float
    server_bytes: float

    def mean_s(self, trainers: int) -> float:
        """Return the seconds of a round where so many trainers go from round to round."""
        return max(self.exchange_s, trainers * self.service_s)


@dataclass(frozen=True)
class Exchange:
    """What brings replicas together, and how fast it is.

    Attributes:
        parameter_bytes: M, the size of a replica.
        network: the cost of an all-reduce by the number of its ranks.
        processor_s: seconds of a round in which the synchronizing thread is on a core: copies, arithmetic, polling.
        servers: synchronization servers that hold the centre of EASGD, each an equal part; 0: the trainers hold it.
        bandwidth: bytes per second of each link; the servers' links are the same in both directions together.
        latency_s: seconds that an exchange with the servers takes besides.
        groups: DS-Sync's groups (`groups.FORMS`).

    Raises:
        CommError: a value out of its range, or servers without a bandwidth.
    """

    parameter_bytes: int
    network: Network
    processor_s: float = 0.0
    servers: int = 0
    bandwidth: float | None = None
    latency_s: float = 0.0
    groups: str = "factors"

    def __post_init__(self) -> None:
        if self.parameter_bytes < 1 or min(self.processor_s, self.servers, self.latency_s) < 0:
            raise CommError(f"{self} describes no exchange")
        if self.bandwidth is not None and not self.bandwidth > 0:
            raise CommError(f"a link of {self.bandwidth:g} bytes/s")
        if self.servers and self.bandwidth is None:
            raise CommError("the bandwidth of the links of the synchronization servers is missing")

    def rounds(self, sync: str, trainers: int) -> CollectiveRounds | ServedRounds | None:
        """Return the rounds of so many trainers; None where there is nothing to bring together.

        Raises:
            CommError: groups that are not for so many trainers, or a network that says nothing about them.
        """
        if sync == "none":
            return None
        if self.servers and sync.endswith("easgd"):
            assert self.bandwidth is not None
            both_ways = 2 * self.parameter_bytes / self.bandwidth
            alone = self.processor_s + self.latency_s + both_ways
            return ServedRounds(alone, both_ways / self.servers, 2 * self.parameter_bytes / self.servers)
        if trainers == 1:
            return None
        sizes = radices(trainers, self.groups) if sync == "ds_sync" else [trainers]
        costs = [self.processor_s + self.network.cost(size)(self.parameter_bytes) for size in sizes]
        return CollectiveRounds(sizes, costs)
