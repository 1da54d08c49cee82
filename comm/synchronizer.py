"""What the solver talks to: gradients in while the backward pass runs, means over the ranks out.

    sync.start(arena.diff, segments)          once
    sync.begin_iteration()                    every iteration
    sync.gradients_ready(index)               last micro-batch, layer by layer downwards
    report = sync.wait()                      before the update

The solver never asks which synchronizer it has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from mgcaffe.comm.communicator import Communicator, Waiting, name_ranks
from mgcaffe.comm.plan import Plan, Segment
from mgcaffe.comm.reducer import Reducer
from mgcaffe.errors import CommError, RankDisagreement

if TYPE_CHECKING:
    import numpy
    import torch


@dataclass(frozen=True)
class GroupTimes:
    """What happened to one merged group, in seconds since `begin_iteration`.

    Attributes:
        bytes: its size.
        ready: when its last gradient was ready.
        start: when its all-reduce started.
        end: when it ended.
    """

    bytes: int
    ready: float
    start: float
    end: float


@dataclass(frozen=True)
class CommReport:
    """The communication of one iteration.

    Attributes:
        total_s: the seconds that all-reduces ran.
        exposed_s: the seconds that the computing thread waited for them after the backward pass.
        hidden_s: the seconds of `total_s` that ran beside the backward pass.
        groups: every group, in the order of the all-reduces.
    """

    total_s: float = 0.0
    exposed_s: float = 0.0
    hidden_s: float = 0.0
    groups: list[GroupTimes] = field(default_factory=list)


class Synchronizer(Protocol):
    """Makes the ranks' gradients agree."""

    def start(self, flat_diff: torch.Tensor | numpy.ndarray, segments: Sequence[Segment]) -> None:
        """Learn the flat gradient buffer and where each layer lies in it, by layer."""

    def begin_iteration(self) -> None:
        """Expect the gradients of a new iteration."""

    def gradients_ready(self, index: int) -> None:
        """Learn that segment `index` holds its complete gradient; called downwards, for every segment."""

    def wait(self) -> CommReport:
        """Return when the whole buffer holds the means over the ranks."""

    def set_plan(self, plan: Plan) -> None:
        """Use another plan from the next iteration on; a collective call, between iterations."""

    def close(self) -> None:
        """End; harmless when repeated."""


class NoSynchronizer:
    """One rank: its gradients are the means already."""

    def start(self, flat_diff: torch.Tensor | numpy.ndarray, segments: Sequence[Segment]) -> None:
        """Do nothing."""

    def begin_iteration(self) -> None:
        """Do nothing."""

    def gradients_ready(self, index: int) -> None:
        """Do nothing."""

    def wait(self) -> CommReport:
        """Return an empty report."""
        return CommReport()

    def set_plan(self, plan: Plan) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class MergedAllReduce:
    """Hands each group of a plan to the background reducer as soon as all its layers are ready (MG-WFBP).

    Args:
        communicator: the ranks.
        plan: the merged groups; may also be set later, but before the first iteration.
        waiting: how the reducer's thread waits (`reducer.py`).
        clock: seconds, for the report.
    """

    def __init__(
        self,
        communicator: Communicator,
        plan: Plan | None = None,
        *,
        waiting: Waiting | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._communicator = communicator
        self._plan = plan
        self._waiting = waiting
        self._clock = clock
        self._reducer: Reducer | None = None
        self._segments: list[Segment] = []
        self._next_layer: int | None = None
        self._next_group = 0
        self._began = 0.0
        self._ready: list[float] = []

    @property
    def plan(self) -> Plan | None:
        """The plan in use."""
        return self._plan

    def start(self, flat_diff: torch.Tensor | numpy.ndarray, segments: Sequence[Segment]) -> None:
        """Start the reducer's thread on the flat gradient buffer; a collective call.

        Raises:
            CommError: segments that don't lie in ascending order inside the buffer, a buffer that cannot be
                reduced, or a plan that doesn't fit.
            RankDisagreement: the ranks have different plans.
        """
        _check_segments(segments, len(flat_diff))
        self._segments = list(segments)
        self._reducer = Reducer(self._communicator, flat_diff, waiting=self._waiting, clock=self._clock)
        if self._plan is not None:
            self.set_plan(self._plan)

    def set_plan(self, plan: Plan) -> None:
        """Check the plan against the buffer and the other ranks, and use it; a collective call.

        Raises:
            CommError: called inside an iteration, or the plan doesn't fit the buffer.
            RankDisagreement: the ranks have different plans.
        """
        if self._next_layer is not None:
            raise CommError("the plan cannot change within an iteration")
        if self._reducer is not None:
            compare_plans(self._communicator, plan)
            plan.check(self._segments)
        self._plan = plan

    def begin_iteration(self) -> None:
        """Expect the gradients of a new iteration.

        Raises:
            CommError: nothing was started, there is no plan, or the last iteration was not waited for.
        """
        if self._reducer is None or self._plan is None:
            raise CommError("gradients cannot be reduced before start() and without a plan")
        if self._next_layer is not None:
            raise CommError("an iteration began before the gradients of the last one were waited for")
        self._next_layer = len(self._segments) - 1
        self._next_group = 0
        self._ready = []
        self._began = self._clock()

    def gradients_ready(self, index: int) -> None:
        """Learn that layer `index` is ready and start the group that this completes, if any.

        Raises:
            CommError: the layer is not the next one downwards.
        """
        if index != self._next_layer or index < 0:
            raise CommError(f"the gradient of {self._name(index)} came out of order; {self._expected()}")
        self._next_layer = index - 1
        assert self._plan is not None and self._reducer is not None
        groups = self._plan.groups
        if self._next_group < len(groups) and groups[self._next_group].first_layer == index:
            group = groups[self._next_group]
            self._ready.append(self._clock())
            self._reducer.submit(self._next_group, group.offset, group.count)
            self._next_group += 1

    def wait(self) -> CommReport:
        """Wait for what is still being reduced.

        Raises:
            CommError: no iteration runs, or a layer's gradient has not come.
            Exception: what went wrong on the reducer's thread.
        """
        if self._next_layer is None or self._next_layer >= 0:
            raise CommError(f"gradients were waited for too early; {self._expected()}")
        assert self._plan is not None and self._reducer is not None
        backward_end = self._clock()
        done = self._reducer.wait()
        exposed = self._clock() - backward_end
        self._next_layer = None
        total = sum(reduction.end - reduction.start for reduction in done)
        groups = [
            GroupTimes(
                self._plan.groups[reduction.number].count * self._reducer.element_bytes,
                self._ready[reduction.number] - self._began,
                reduction.start - self._began,
                reduction.end - self._began,
            )
            for reduction in done
        ]
        return CommReport(total, exposed, max(0.0, total - exposed), groups)

    def close(self) -> None:
        """End the reducer's thread."""
        if self._reducer is not None:
            self._reducer.close()

    def _name(self, index: int) -> str:
        return f"layer '{self._segments[index].name}'" if 0 <= index < len(self._segments) else f"layer {index}"

    def _expected(self) -> str:
        if self._next_layer is None:
            return "no iteration has begun"
        if self._next_layer < 0:
            return "all layers have come already"
        return f"next is {self._name(self._next_layer)}, number {self._next_layer} of {len(self._segments)}"


def compare_plans(communicator: Communicator, plan: Plan) -> None:
    """Make sure that all ranks have the same plan; a collective call.

    Raises:
        RankDisagreement: on every rank.
    """
    ranks: dict[str, list[int]] = {}
    for rank, digest in enumerate(communicator.allgather(plan.hash)):
        ranks.setdefault(digest, []).append(rank)
    if len(ranks) > 1:
        groups = "; ".join(f"{name_ranks(who)}: {digest[:12]}" for digest, who in ranks.items())
        raise RankDisagreement(
            f"the ranks have different plans ({groups})",
            hint="give every rank the same plan file and schedule",
        )


def _check_segments(segments: Sequence[Segment], size: int) -> None:
    end = 0
    for segment in segments:
        if segment.offset < end or segment.count < 0:
            raise CommError(f"layer '{segment.name}' overlaps its predecessor in the gradient buffer")
        end = segment.offset + segment.count
    if end > size:
        raise CommError(f"layer '{segments[-1].name}' ends at element {end} of a gradient buffer of {size}")
