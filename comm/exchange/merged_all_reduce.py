"""Hands each group of a plan to the background reducer while the backward pass runs (MG-WFBP).

Groups go out in the plan's order (`Plan.order`): first ready, first sent, or, if the tail is to run on, in that in
which the forward pass needs them. `synchronizer.py` says in which order it is called.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from mgcaffe.comm.exchange.comm_report import CommReport, OnGroup
from mgcaffe.comm.exchange.iteration import Iteration, name_segment
from mgcaffe.comm.exchange.reducer import Reducer
from mgcaffe.comm.exchange.sums.base import TransferSettings
from mgcaffe.comm.planning.plan import Plan, Segment
from mgcaffe.comm.transport.communicator import Communicator, Waiting, name_ranks
from mgcaffe.errors import CommError, RankDisagreement

if TYPE_CHECKING:
    import numpy
    import torch

_AT_ONCE = 2
"""How many groups travel at a time where all-reduces go on by themselves, as with DistributedDataParallel over gloo."""


class MergedAllReduce:
    """Hands each group of a plan to the background reducer as soon as all its layers are ready (MG-WFBP).

    Args:
        communicator: the ranks.
        plan: the merged groups; may also be set later, but before the first iteration.
        waiting: how the reducer's thread waits (`reducer.py`), whatever the plan says; None: as the plan says.
        transfer: in which type and by which way gradients travel.
        clock: seconds, for the report.
    """

    def __init__(
        self,
        communicator: Communicator,
        plan: Plan | None = None,
        *,
        waiting: Waiting | None = None,
        transfer: TransferSettings | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._communicator = communicator
        self._plan = plan
        self._waiting = waiting
        self._transfer = transfer
        self._clock = clock
        self._reducer: Reducer | None = None
        self._segments: list[Segment] = []
        self._is_held = False
        self._iteration: Iteration | None = None
        self._yields_core = False
        self._late: CommReport | None = None

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
        self._reducer = Reducer(
            self._communicator,
            flat_diff,
            waiting=self._waiting,
            transfer=self._transfer,
            segments=self._segments,
            clock=self._clock,
        )
        if self._plan is not None:
            self.set_plan(self._plan)

    def set_plan(self, plan: Plan, *, afterwards: bool = False, one_by_one: bool = False) -> None:
        """Check the plan against the buffer and the other ranks, and use it; a collective call.

        What is deferred comes to its end first; `finish` still gives its report. With `afterwards`, all groups wait
        until the backward pass has ended; for `one_by_one` see `Synchronizer`.

        Raises:
            CommError: called inside an iteration, or the plan doesn't fit the buffer.
            RankDisagreement: the ranks have different plans.
        """
        if self._iteration is not None and self._iteration.is_deferred:
            self._late = self.finish()
        if self._iteration is not None:
            raise CommError("the plan cannot change within an iteration")
        if self._reducer is not None:
            compare_plans(self._communicator, plan)
            plan.check(self._segments)
            if self._waiting is None:
                self._reducer.set_waiting(Waiting(blocking=plan.blocking, at_once=1 if one_by_one else _AT_ONCE))
        self._plan = plan
        self._is_held = afterwards

    def begin_iteration(self) -> None:
        """Expect the gradients of a new iteration.

        Raises:
            CommError: nothing was started, there is no plan, or the last iteration was not waited for.
        """
        if self._reducer is None or self._plan is None:
            raise CommError("gradients cannot be reduced before start() and without a plan")
        if self._iteration is not None:
            raise CommError("an iteration began before the gradients of the last one were waited for")
        self._iteration = Iteration(self._plan, self._segments, self._reducer, self._clock, is_held=self._is_held)

    def gradients_ready(self, segment: int, count: int = 1) -> None:
        """Take note that `count` segments from this one upwards are complete; send the groups that this completes.

        Raises:
            CommError: the segments are not the next ones downwards.
        """
        if self._iteration is None:
            name = name_segment(self._segments, segment)
            raise CommError(f"the gradient of {name} came out of order; no iteration has begun")
        self._iteration.gradients_ready(segment, count)

    def backward_done(self) -> None:
        """Take note that the backward pass has ended, if `wait` or `defer` don't follow at once.

        Until then the computing thread only exchanges small things with its peers. While groups are being reduced
        it polls infrequently, and the reducer's thread without a pause: two threads that both poll without a pause
        would slow each other down.
        """
        assert self._iteration is not None and self._reducer is not None
        if self._iteration.backward_done():
            self._reducer.set_busy_polling(True)
            self._communicator.set_busy_polling(False)
            self._yields_core = True

    def wait(self, on_group: OnGroup | None = None) -> CommReport:
        """Wait for what is still being reduced; `on_group` gets each group as soon as its means have come.

        Raises:
            CommError: no iteration runs, or a layer's gradient has not come.
            Exception: what went wrong on the reducer's thread.
        """
        return self._complete(self._end_backward(on_group))

    def defer(self, on_group: OnGroup) -> None:
        """Let communication run on; `wait_for_segment` and `finish` give its groups to `on_group`.

        Raises:
            CommError: as for `wait`.
        """
        iteration = self._end_backward(on_group)
        assert self._reducer is not None
        self._reducer.set_busy_polling(False)  # the computing thread goes on computing
        iteration.is_deferred = True

    def wait_for_segment(self, segment: int) -> None:
        """Wait for the group of a segment, and those sent before it, if they were deferred.

        Raises:
            Exception: what went wrong on the reducer's thread.
        """
        if self._iteration is not None and self._iteration.is_deferred:
            self._iteration.wait_for_segment(segment)

    def finish(self) -> CommReport | None:
        """Wait for all that was deferred.

        Raises:
            Exception: what went wrong on the reducer's thread.
        """
        if self._iteration is None or not self._iteration.is_deferred:
            report, self._late = self._late, None
            return report
        return self._complete(self._iteration)

    def _end_backward(self, on_group: OnGroup | None) -> Iteration:
        if self._iteration is None:
            raise CommError("gradients were waited for too early; no iteration has begun")
        if self._yields_core:
            self._communicator.set_busy_polling(True)
            self._yields_core = False
        self._iteration.end_backward(on_group)
        return self._iteration

    def _complete(self, iteration: Iteration) -> CommReport:
        report = iteration.complete()
        self._iteration = None
        return report

    def close(self) -> None:
        """End the reducer's thread."""
        if self._reducer is not None:
            self._reducer.close()


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
