"""A trainer's replica among those of the others, as the solver uses it: from the first iteration to the mean of all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from numpy.typing import NDArray

from mgcaffe.comm import Communicator
from mgcaffe.comm.replicas.figures import SyncFigures
from mgcaffe.comm.replicas.synchronizer import ParameterSynchronizer
from mgcaffe.comm.supervision import status
from mgcaffe.engine import Net
from mgcaffe.errors import SolverError
from mgcaffe.prototxt import CommParameter, SolverParameter
from mgcaffe.solvers.events import Emit, Noted, Synchronized, Warned
from mgcaffe.solvers.replicas.sync_settings import SyncSettings

_ONE_REQUEST_S = 2.0
"""Requests for a snapshot that come within so many seconds are one."""


class Replicas:
    """One trainer's replica, and how it is kept together with the others'.

    The replica is what the arena's `kept_together` says: parameters that train, and statistics that forward changes.

    Args:
        settings: the rule, the pace and the topology; None: the ranks average gradients in step, there is one replica
            in effect, and every call but `iterations` does nothing.
        net: the training net.
        world: the trainers.
        emit: takes the events.
        servers: the trainers and, behind them, the synchronization servers; None: there are none.

    Attributes:
        trainers: how many there are.

    Raises:
        SolverError: a setting out of its range, or a net on a GPU.
    """

    def __init__(
        self,
        settings: SyncSettings | None,
        net: Net,
        world: Communicator,
        emit: Emit,
        servers: Communicator | None = None,
    ) -> None:
        self.trainers = world.size
        self._net = net
        self._world = world
        self._rank = world.rank
        self._emit = emit
        self._resumed: dict[str, NDArray[Any]] = {}
        self._begun_at = [0] * world.size
        self._displayed = time.perf_counter(), 0
        self._asked_at = float("-inf")
        self._is_started = False
        self._sync: ParameterSynchronizer | None = None
        self._saves_all = settings is not None and settings.comm.snapshot_replicas
        self._survives_losses = settings is not None and settings.comm.on_trainer_loss == CommParameter.CONTINUE
        if settings is None:
            return
        if world.size == 1:
            settings.synchronizer(world)  # checks the values
            return
        if net.device.type != "cpu":
            raise SolverError(
                f"sync {settings.kind} keeps replicas together in host memory, and this net is on {net.device}",
                location=settings.location,
                hint="train on the CPU (solver_mode: CPU), or leave sync out to average gradients in step",
            )
        self._sync = settings.synchronizer(world, net.arena.trainable, servers)
        emit(Noted(settings.describe(world.size)))

    @property
    def is_one_of_several(self) -> bool:
        """Whether there are other replicas beside this one."""
        return self._sync is not None

    def are_tested(self, param: SolverParameter) -> bool:
        """Return whether one replica, and the mean of all, is tested at the end, whatever iteration that is."""
        return self.is_one_of_several and param.test_interval > 0

    @property
    def are_all_saved(self) -> bool:
        """Whether each trainer writes snapshots of its own replica."""
        return self.is_one_of_several and self._saves_all

    def can_resume_all(self, state: Mapping[str, NDArray[Any]]) -> bool:
        """Return whether each trainer may go on from its own replica: a rule that begins anew needs equal ones."""
        return self.are_all_saved and (self._sync is None or set(state) == set(self._sync.state_names))

    @property
    def lock(self) -> Any:
        """To be held while the replica is updated or copied."""
        return nullcontext() if self._sync is None else self._sync.lock

    @property
    def figures(self) -> SyncFigures:
        """What the synchronization has come to so far."""
        return SyncFigures() if self._sync is None else self._sync.figures

    @property
    def stop_requested(self) -> bool:
        """Whether another trainer has asked for the end of the training."""
        return self._sync is not None and self._sync.agreement.stop_requested

    @property
    def state(self) -> dict[str, NDArray[Any]]:
        """A copy of the rule's state (EASGD's centre, BMUF's global model and velocity), by name."""
        return {} if self._sync is None or not self._is_started else self._sync.state

    def iterations(self, own: int) -> tuple[int, ...]:
        """Return how many iterations each trainer has made in all, as of the latest agreement.

        Args:
            own: this one's.
        """
        if self._sync is None:
            return (own,) * self.trainers
        since = self.figures.trainers or (0,) * self.trainers
        counts = [begun + done for begun, done in zip(self._begun_at, since, strict=True)]
        counts[self._rank] = own
        return tuple(counts)

    def iterations_here(self, own: int) -> tuple[int, ...]:
        """Return those of each trainer since this run began; argument as for `iterations`."""
        return tuple(count - begun for count, begun in zip(self.iterations(own), self._begun_at, strict=True))

    def resume(self, state: Mapping[str, NDArray[Any]], iterations: Sequence[int]) -> None:
        """Go on from where an earlier run stood; before `start`.

        Args:
            state: the rule's; left out where it is not this rule's or net's.
            iterations: those of each trainer.
        """
        self._begun_at = list(iterations)
        self._resumed = dict(state)

    def observe(self, on_round: Callable[[float, float, SyncFigures], None]) -> None:
        """Register what is to be called after each round; see `ParameterSynchronizer.on_round`."""
        if self._sync is not None:
            self._sync.on_round = on_round

    def start(self) -> None:
        """Begin to keep the replica together with the others'; harmless when repeated."""
        if self._is_started:
            return
        self._is_started = True
        self._displayed = time.perf_counter(), sum(self._begun_at)
        if self._sync is not None:
            replica = self._net.arena.data[: self._net.arena.kept_together]
            self._sync.start(replica, self._fitting_state(), self._begun_at[self._world.rank], self._begun_at[0])

    def iteration_done(self) -> None:
        """Take note of an iteration, and run the round that is due in the foreground."""
        if self._sync is not None:
            self._sync.iteration_done()

    def pass_on_stop(self, is_wanted: bool) -> bool:
        """Ask all trainers to end their training, if it is wanted here; return whether any trainer wants it."""
        if self._sync is None:
            return is_wanted
        if is_wanted:
            self._sync.agreement.request_stop()
        return is_wanted or self._sync.agreement.stop_requested

    def wants_snapshot(self, is_wanted: bool) -> bool:
        """Return whether this trainer is to take a snapshot: of its own request, or of another trainer's.

        Trainer 0 takes it, and the others pass their requests on to it; where all replicas are saved, each takes its
        own as well. A signal to all ranks asks each of them: trainer 0 has met a request that follows its own.
        """
        if self._sync is None:
            return is_wanted
        if self._world.rank != 0:
            if is_wanted:
                self._sync.agreement.request_snapshot()
            return is_wanted
        now = time.perf_counter()
        asked = self._sync.agreement.take_snapshot_request() and now > self._asked_at + _ONE_REQUEST_S
        if is_wanted or asked:
            self._asked_at = now
        return is_wanted or asked

    def fail(self, error: BaseException) -> None:
        """Have the training thread raise an error of a thread beside it; from that thread."""
        if self._sync is not None:
            self._sync.fail(error)

    def finish(self, own: int, wants_stop: Callable[[], bool]) -> None:
        """Return when all trainers have ended their training, whose rounds go on until then; warn of unequal ends.

        Args:
            own: iterations that this one has made.
            wants_stop: whether this rank has been asked to stop meanwhile, which is then passed on to the others.
        """
        if self._sync is not None and self._is_started:
            self._sync.finish(wants_stop)
        if self._survives_losses:
            status.current().tolerated = frozenset()
            self._world.shrink()
        iterations = self.iterations(own)
        if len(set(iterations)) > 1:
            shown = ", ".join(map(str, iterations))
            self._emit(Warned(f"the trainers ended after different numbers of iterations: {shown}"))

    def display(self, iteration: int, records: int) -> None:
        """Emit the figures; `records` are those that a trainer reads in an iteration."""
        if self._sync is None:
            return
        counts = self.iterations(iteration)
        now, (before, counted) = time.perf_counter(), self._displayed
        speed = (sum(counts) - counted) * records / (now - before) if now > before else 0.0
        self._displayed = now, sum(counts)
        self._emit(Synchronized(iteration, counts, speed, self.figures))

    @contextmanager
    def mean_of_all(self) -> Iterator[None]:
        """Put the mean of all replicas in the place of this one inside; collective, after `finish`."""
        replica = self._net.arena.data[: self._net.arena.kept_together]
        own = replica.clone()
        self._world.allreduce(replica)
        replica.div_(self._world.size)  # some may have died
        yield
        replica.copy_(own)

    def _fitting_state(self) -> dict[str, NDArray[Any]]:
        """Return the state to go on with, unless another rule or net left it."""
        if not self._resumed:
            return {}
        assert self._sync is not None
        sizes = {name: (self._net.arena.kept_together,) for name in self._sync.state_names}
        if {name: values.shape for name, values in self._resumed.items()} == sizes:
            return self._resumed
        self._emit(
            Warned(
                f"the snapshot's state of the synchronization ({', '.join(self._resumed)}) is of another rule or net:"
                " the rule begins with the replica"
            )
        )
        return {}
