"""Everything that a training run may show its user, as data.

The solver prints nothing. It hands these events to its listeners on every rank (those about files on rank 0
alone, which reads and writes them), in the order in which things happen; the tools turn them into Caffe's log
lines, a progress line and JSON. All times are in seconds, all figures are this rank's own unless the field
says otherwise.

Here are the events of training itself; those about tests, about snapshots and of `debug_info` have files of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mgcaffe.comm.planning.cost import Cost
    from mgcaffe.comm.planning.plan import Plan
    from mgcaffe.comm.replicas.figures import SyncFigures
    from mgcaffe.comm.tables.figures import LookUpFigures
    from mgcaffe.comm.tuning.decision import Decision


@dataclass(frozen=True)
class OutputValue:
    """One number of a net's outputs.

    Attributes:
        index: its number over all outputs of the net (Caffe's `output #k`).
        name: the blob's name.
        value: the number, averaged over the ranks (and over test_iter in a test).
        loss_weight: the blob's weight in the net's loss, 0 for outputs that are no loss.
    """

    index: int
    name: str
    value: float
    loss_weight: float = 0.0

    @property
    def weighted(self) -> float:
        """The number's share in the net's loss."""
        return self.loss_weight * self.value


class Event:
    """The base of all events."""


@dataclass(frozen=True)
class Started(Event):
    """`solve` begins.

    Attributes:
        net: the training net's name.
        solver_type: `SGD` and so on.
        policy: the learning-rate policy.
        iteration: how many updates the weights have seen already.
        max_iter: where training ends.
        batch_size: records in one iteration, over all ranks, workers and micro-batches; 0 if no data layer says.
        parameters: number of learnable values.
        ranks: how many ranks train in step.
        test_nets: how many test nets there are.
        workers: how many Hogwild workers each rank has.
        precision: in how many bits products are computed; empty: not known, as of modules of PyTorch.
    """

    net: str
    solver_type: str
    policy: str
    iteration: int
    max_iter: int
    batch_size: int
    parameters: int
    ranks: int
    test_nets: int
    workers: int = 1
    precision: str = "float32"


@dataclass(frozen=True)
class Displayed(Event):
    """An iteration that `display` asks to see (Caffe: `Iteration 100 (50 iter/s, 2s/100 iters), loss = ...`).

    Attributes:
        iteration: updates done before this iteration.
        loss: smoothed over `average_loss` iterations, mean over the ranks.
        iterations_per_second: since the last display; None for the forward pass after the last update, which
            Caffe shows without a speed.
        seconds: since the last display; None likewise.
        iterations: how many iterations `seconds` spans; None likewise.
        outputs: the training net's outputs in this iteration's last micro-batch; none after the last update.
        comm_hidden_s, comm_exposed_s: communication since the last display, hidden behind the backward pass
            and waited for.
    """

    iteration: int
    loss: float
    iterations_per_second: float | None
    seconds: float | None
    iterations: int | None
    outputs: tuple[OutputValue, ...]
    comm_hidden_s: float = 0.0
    comm_exposed_s: float = 0.0


@dataclass(frozen=True)
class LearningRate(Event):
    """The rate of the update of an iteration that is displayed (Caffe: `Iteration 100, lr = 0.01`)."""

    iteration: int
    rate: float


@dataclass(frozen=True)
class IterationDone(Event):
    """One update was made.

    Attributes:
        iteration: updates done before this one (counted from 0, as in Displayed).
        loss: of this iteration alone, mean over micro-batches and ranks; with several Hogwild workers, worker 0's.
        smoothed_loss: over the last `average_loss` iterations.
        rate: the learning rate used.
        images: records read by all ranks; Hogwild's other workers count with what they have read since the last one.
        seconds: wall time of the iteration.
        data_wait_s: time spent waiting for data.
        comm_hidden_s, comm_exposed_s: communication hidden behind the backward pass, and waited for.
        data_work_s: what making batches took in its threads meanwhile, by stage (engine/data/stages.py).
    """

    iteration: int
    loss: float
    smoothed_loss: float
    rate: float
    images: int
    seconds: float
    data_wait_s: float
    comm_hidden_s: float
    comm_exposed_s: float
    data_work_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LossScaleChanged(Event):
    """The factor on the loss by which fp16 keeps gradients in range is another one from the next iteration on.

    Attributes:
        iteration: the one after which it changes, counted from 0.
        scale: the new one.
        is_skipped: whether it was halved because gradients overflowed, so that no rank has updated its weights in this
            iteration; else it was doubled.
    """

    iteration: int
    scale: float
    is_skipped: bool

    @property
    def text(self) -> str:
        """What a log says of it."""
        what = "gradients overflow in fp16, so the weights stay as they are, and" if self.is_skipped else "from now on"
        return f"Iteration {self.iteration}: {what} the loss scale is {self.scale:g}"


@dataclass(frozen=True)
class PlanChosen(Event):
    """The merged groups of the gradients are decided; the same plan holds on every rank.

    Attributes:
        iteration: the first iteration that uses it.
        schedule: the schedule that made it.
        plan: the plan (comm.Plan), with its groups and predicted times.
        cost: the measured all-reduce cost curve, None where nothing was measured.
        decision: all that the plan rests on (comm.tuning.decision.Decision), likewise.
    """

    iteration: int
    schedule: str
    plan: Plan
    cost: Cost | None
    decision: Decision | None = None


@dataclass(frozen=True)
class Noted(Event):
    """A remark that needs no action."""

    text: str


@dataclass(frozen=True)
class Warned(Event):
    """A warning, which does not stop the run."""

    text: str


@dataclass(frozen=True)
class Synchronized(Event):
    """How trainers with replicas of their own stand, at a displayed iteration.

    Attributes:
        iteration: updates that this trainer has done.
        iterations: those of each trainer, as of the latest agreement.
        examples_per_s: records that all trainers together have trained on per second, since the last display.
        figures: of this trainer's synchronization so far.
    """

    iteration: int
    iterations: tuple[int, ...]
    examples_per_s: float
    figures: SyncFigures


@dataclass(frozen=True)
class TablesLookedUp(Event):
    """How this trainer's look-ups on embedding servers stand, at a displayed iteration and at the end.

    Attributes:
        iteration: updates that this trainer has done.
        figures: totals so far.
    """

    iteration: int
    figures: LookUpFigures


@dataclass(frozen=True)
class Finished(Event):
    """`solve` ended.

    Attributes:
        iteration: updates done in all.
        stopped_early: whether a stop was asked for before max_iter.
        seconds: wall time of `solve`.
        images: records read by all ranks in training.
        comm_hidden_s, comm_exposed_s: totals of communication hidden behind the backward pass, and waited
            for.
        snapshot: the last solverstate written in this run, if any.
        scores: the scores of the last test of each test net.
        training_s: wall time until the last rank had made its last update.
        iterations: updates done by each rank.
        synchronization: the figures of trainers with replicas of their own; None: the ranks trained in step.
        mean_scores: as `scores`, of the mean of all replicas.
        tested_at: the iteration of that last test; None: there was none in this run.
    """

    iteration: int
    stopped_early: bool
    seconds: float
    images: int
    comm_hidden_s: float
    comm_exposed_s: float
    snapshot: str | None
    scores: tuple[tuple[OutputValue, ...], ...] = ()
    training_s: float = 0.0
    iterations: tuple[int, ...] = ()
    synchronization: SyncFigures | None = None
    mean_scores: tuple[tuple[OutputValue, ...], ...] = ()
    tested_at: int | None = None

    @property
    def examples_per_s(self) -> float | None:
        """Records that all ranks read per second of training; None where none were read."""
        return self.images / self.training_s if self.training_s > 0 and self.images else None

    @property
    def hidden_share(self) -> float | None:
        """The share of communication that was hidden, from 0 to 1; None where there was none."""
        total = self.comm_hidden_s + self.comm_exposed_s
        return self.comm_hidden_s / total if total > 0 else None


Emit = Callable[[Event], None]
"""Takes an event, and passes it to all listeners."""


class SolverListener(Protocol):
    """Takes the events of a solver."""

    def on_event(self, event: Event) -> None:
        """Take one event, on the thread that trains; called on every rank."""
