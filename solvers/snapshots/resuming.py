"""What a snapshot holds beside weights and histories, gathered for it, and put back by a resume.

Of all this Caffe keeps the iteration and the rate's step: it starts its data from the beginning, with new random
numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mgcaffe.comm import SingleCommunicator
from mgcaffe.engine import Net
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers import carried_state
from mgcaffe.solvers.events import Emit, Noted, Started, Warned
from mgcaffe.solvers.exchange.averaging import GradientAveraging
from mgcaffe.solvers.exchange.ranks import Ranks
from mgcaffe.solvers.loss_scale import LossScale
from mgcaffe.solvers.monitor.smoothing import SmoothedLoss
from mgcaffe.solvers.rates.policies import LearningRatePolicy
from mgcaffe.solvers.replicas.replicas import Replicas
from mgcaffe.solvers.setup.building import BuiltNets
from mgcaffe.solvers.snapshots.progress import Progress
from mgcaffe.solvers.update.updater import Updater

if TYPE_CHECKING:
    from mgcaffe.engine.data.data_layer import DataLayer


@dataclass(frozen=True)
class RunState:
    """The parts of a solver that have a state beside weights and histories.

    Attributes:
        param: the SolverParameter message.
        nets: with their data positions and recurrent states.
        world: all ranks.
        ranks: those that train in step.
        updater: the update rule.
        policy: the learning-rate policy.
        smoothed: the latest losses.
        averaging: holds the plan by which gradients are merged.
        replicas: how this rank's replica is kept together with others.
        loss_scale: the factor on the loss.
        emit: takes the events.
    """

    param: SolverParameter
    nets: BuiltNets
    world: Ranks
    ranks: Ranks
    updater: Updater
    policy: LearningRatePolicy
    smoothed: SmoothedLoss
    averaging: GradientAveraging
    replicas: Replicas
    loss_scale: LossScale
    emit: Emit

    def started(self, iteration: int, records: int) -> Started:
        """Return the event of a run's begin.

        Args:
            iteration: updates done.
            records: those that a worker reads in an iteration.
        """
        return Started(
            net=self.nets.train.name,
            solver_type=self.updater.name,
            policy=self.policy.name,
            iteration=iteration,
            max_iter=self.param.max_iter,
            batch_size=records * self.world.size * len(self.nets.workers),
            parameters=sum(parameter.count for parameter in self.nets.train.parameters),
            ranks=self.world.size,
            test_nets=len(self.nets.tests),
            workers=len(self.nets.workers),
            precision=self._precision,
        )

    @property
    def _precision(self) -> str:
        """What products are computed in."""
        return self.nets.train.context.precision.name

    def progress(self, iteration: int, seed: int, *, alone: bool = False) -> Progress:
        """Gather where the run stands; collective unless this rank is alone, and complete on rank 0."""
        plan = self.averaging.plan
        communicator = SingleCommunicator() if alone else self.ranks.communicator
        return Progress(
            iteration=iteration,
            current_step=self.policy.current_step(iteration),
            seed=seed,
            world_size=self.world.size,
            workers=len(self.nets.workers),
            records=data_positions(self.nets.train, self.nets.tests),
            smoothed_losses=self.smoothed.losses,
            plateau=self.policy.state,
            solver_type=self.updater.name,
            precision=self._precision,
            loss_scale=self.loss_scale.state,
            correlations=self.updater.correlations,
            plan=plan.to_json() if plan is not None else "",
            recurrent=carried_state.gather(self.nets.workers, self.nets.tests, communicator),
            trainers=list(self.replicas.iterations(iteration)) if self.replicas.is_one_of_several else [],
            synchronization=self.replicas.state,
        )

    def _iterations(self, progress: Progress, own: Progress | None) -> list[int]:
        """Return from which iteration each rank goes on; collective."""
        if own is not None:
            return self.world.communicator.allgather(own.iteration)
        if self.replicas.is_one_of_several and len(progress.trainers) == self.world.size:
            return progress.trainers
        return [progress.iteration] * self.world.size

    def resume(self, progress: Progress, own: Progress | None) -> int:
        """Put everything back, and warn of what the snapshot does not say or what has changed since; collective.

        Args:
            progress: where rank 0 stood.
            own: where this trainer stood, whose own replica has been put back; None: rank 0's has.

        Returns:
            From which iteration this rank goes on: its own, where each trainer has a replica of its own.
        """
        iterations = self._iterations(progress, own)
        iteration = iterations[self.world.rank]
        self.replicas.resume(progress.synchronization, iterations)
        self._say_what_was_merged(progress, own, iterations)
        progress = own or progress
        if progress.seed is not None:
            self._take_seed(progress.seed)
        self.smoothed.restore(progress.smoothed_losses)
        missing = self.policy.resume(progress.plateau, iteration, progress.current_step)
        for text in (missing, self.updater.resume(progress.correlations)):
            if text is not None:
                self.emit(Warned(text))
        self._warn_of_world_size(progress.world_size, progress.workers)
        if progress.precision not in (None, self._precision):
            before, now = progress.precision, self._precision
            self.emit(Warned(f"the snapshot was taken with products in {before} and training goes on in {now}"))
        if self.loss_scale.state is not None and progress.loss_scale is not None:
            self.loss_scale.state = progress.loss_scale
        recurrent = progress.recurrent if own is not None or self.world.rank == self.ranks.rank else []
        carried_state.put_back(
            self.nets.workers, self.nets.tests, recurrent, self.ranks.rank, self.ranks.size, self.emit
        )
        if progress.world_size == self.ranks.size:
            self.averaging.adopt(progress.plan)
        self._seek_data(progress.records, iteration, iteration - progress.iteration)
        return iteration

    def _take_seed(self, seed: int) -> None:
        """Go on with the snapshot's seed, which all random numbers derive from; `_seek_data` has to follow."""
        if self.param.random_seed >= 0 and self.param.random_seed != seed:
            self.emit(
                Warned(f"going on with the snapshot's seed {seed}, not with random_seed {self.param.random_seed}")
            )
        for net in (*self.nets.workers, *self.nets.tests):
            net.seed = net.context.seed = seed

    def _warn_of_world_size(self, before: int | None, workers_before: int) -> None:
        """Warn that another number of ranks, or workers, makes another batch."""
        workers = len(self.nets.workers)
        if before is not None and workers_before != workers:
            self.emit(
                Warned(
                    f"the snapshot was taken with {workers_before} Hogwild worker(s) a rank and training goes on with"
                    f" {workers}: the records that all read in an iteration change with them"
                )
            )
        if before is not None and before != self.world.size:
            apart = self.replicas.is_one_of_several
            changed = (
                "the share of the data that each trainer reads changes"
                if apart
                else ("the batch over all ranks changes")
            )
            self.emit(
                Warned(
                    f"the snapshot was taken with {before} rank(s) and training goes on with {self.world.size}:"
                    f" {changed} with them"
                )
            )

    def _say_what_was_merged(self, progress: Progress, own: Progress | None, iterations: list[int]) -> None:
        """Note what became of the replicas, where this run or the one before has several."""
        if not self.replicas.is_one_of_several:
            if len(progress.trainers) > 1:
                text = (
                    f"of {len(progress.trainers)} replicas the snapshot holds trainer 0's, and training goes on with it"
                )
                self.emit(Noted(text))
            return
        places = f"iteration {iterations[0]}"
        if len(set(iterations)) > 1:
            places = f"iterations {', '.join(map(str, iterations))}"
        whose = "each from its own replica and histories" if own is not None else "from the snapshot's one replica"
        self.emit(Noted(f"all {self.world.size} trainers go on at {places} {whose}"))
        if len(set(progress.trainers)) > 1 and len(progress.trainers) != self.world.size:
            counts = ", ".join(map(str, progress.trainers))
            self.emit(
                Warned(
                    f"the snapshot's {len(progress.trainers)} trainers had made {counts} iterations: data of those that"
                    f" had not come to {progress.iteration} are passed over, of those beyond it read again"
                )
            )

    def _seek_data(self, records: dict[str, int] | None, iteration: int, ahead: int) -> None:
        """Move every data layer to where a run stood that has made `iteration` updates.

        A layer that the snapshot doesn't know (all of them, in one that Caffe wrote) is moved by computation.

        Args:
            records: what `data_positions` gave.
            iteration: updates done.
            ahead: how many of them this rank has made since the snapshot was taken; negative: it lacks some.
        """
        computed = []
        for name, layer, test in _named(self.nets.train, self.nets.tests):
            if records is not None and name in records:
                since = ahead * self._records_per_iteration(layer) if test is None else 0
                layer.seek(max(0, records[name] + since))
                continue
            if test is None:
                layer.seek(iteration * self._records_per_iteration(layer))
            else:
                layer.seek(_tests_done(self.param, iteration) * self.param.test_iter[test] * layer.batch_size)
            computed.append(f"'{layer.name}' at record {layer.position()}")
        for net in self.nets.workers[1:]:
            for theirs, mine in zip(net.data_layers, self.nets.train.data_layers, strict=True):
                theirs.seek(mine.position())
        if computed:
            self.emit(
                Warned(
                    "the snapshot doesn't say where the data stood; going on as if this run's batch sizes, ranks"
                    f" and tests had been in force from the start: {', '.join(computed)}"
                )
            )

    def _records_per_iteration(self, layer: DataLayer) -> int:
        """Return how many records all workers of all ranks read in an iteration."""
        return int(self.param.iter_size * self.world.size * len(self.nets.workers) * layer.batch_size)


def data_positions(train_net: Net, test_nets: Sequence[Net]) -> dict[str, int]:
    """Return the global records that every data layer has given, by the name it has in a snapshot."""
    return {name: layer.position() for name, layer, _ in _named(train_net, test_nets)}


def _named(train_net: Net, test_nets: Sequence[Net]) -> Iterator[tuple[str, DataLayer, int | None]]:
    """Yield (name in a snapshot, layer, index of the test net or None) of all data layers."""
    for layer in train_net.data_layers:
        yield layer.name, layer, None
    for index, net in enumerate(test_nets):
        for layer in net.data_layers:
            yield f"{index}:{layer.name}", layer, index


def _tests_done(param: SolverParameter, iteration: int) -> int:
    """Count the tests that come before the update number `iteration` (the test due at that number comes after)."""
    if param.test_interval <= 0 or iteration == 0:
        return 0
    due = (iteration - 1) // param.test_interval + 1
    return due if param.test_initialization else due - 1
