"""Averages the gradients over the ranks while backward runs, by a plan measured on the first iterations.

Until the layers' backward times are known the gradients travel by a plan that needs no measuring, so training
goes on meanwhile and nothing is computed twice. Which plan is in use does not change the means.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from mgcaffe.comm import (
    AffineCost,
    CommReport,
    Communicator,
    Cost,
    MergedAllReduce,
    NoSynchronizer,
    Plan,
    Segment,
    Synchronizer,
    agree_times,
    make_plan,
    measure_allreduce,
    read_plan,
    ready_times,
)
from mgcaffe.engine import Net
from mgcaffe.errors import CommError
from mgcaffe.solvers.events import Emit, PlanChosen, Warned
from mgcaffe.solvers.stopwatch import Stopwatch

# Schedules that merge by the layers' sizes alone; the others start as `single`.
_NEED_NO_MEASURING = ("single", "wfbp", "threshold")


class GradientAveraging:
    """The exchange of one net's gradients.

    Args:
        net: the training net.
        communicator: the ranks; with one rank nothing is exchanged.
        param: the SolverParameter message; its comm_param says over how many iterations the backward times are
            measured (0: not at all), how large the buckets of the schedule `threshold` are, and which plan
            file, if any, is used instead of a schedule.
        schedule: how gradients are merged (`comm.planners.SCHEDULES`); None: as the solver says.
        emit: takes the events.

    Attributes:
        plan: the plan in use, None with one rank.
        measured: whether it is final: rests on measured times, or was taken over from a snapshot or a file.

    Raises:
        CommError: an unknown schedule; (on rank 0, which alone reads it) a plan file that doesn't fit the net.
        DataError: on rank 0, a plan file that cannot be read.
    """

    def __init__(
        self,
        net: Net,
        communicator: Communicator,
        param: Any,
        schedule: str | None,
        emit: Emit,
    ) -> None:
        schedule = schedule or requested_schedule(param)
        self._net = net
        self._communicator = communicator
        self._schedule = schedule
        self._calibration_iterations: int = param.comm_param.calibration_iterations
        self._bucket_bytes: float = param.comm_param.bucket_mb * 1024 * 1024
        self._emit = emit
        segments = net.arena.segments()
        self._segments = [Segment(name, offset, count) for name, _, offset, count in segments]
        self._segment_of = {layer: index for index, (_, layer, _, _) in enumerate(segments)}
        self._stopwatch = Stopwatch(net.device)
        self._times: list[list[float]] = []
        self.plan: Plan | None = None
        pinned = self._read_plan(param.comm_param.plan_file)
        self._is_pinned = pinned is not None
        # There is nothing to plan where all parameters are frozen.
        self.measured = communicator.size == 1 or not segments or self._is_pinned
        first = schedule if schedule in _NEED_NO_MEASURING else "single"
        guess = self._make_plan(first, [0.0] * len(segments), AffineCost(0.0, 0.0), 0.0)
        self._synchronizer: Synchronizer = NoSynchronizer()
        if communicator.size > 1:
            if schedule != first:
                self._make_plan(schedule, [0.0] * len(segments), AffineCost(0.0, 0.0), 0.0)
            self.plan = pinned or guess
            self._synchronizer = MergedAllReduce(communicator, self.plan)
            self._synchronizer.start(net.arena.diff, self._segments)
            if pinned is not None:
                self._emit(PlanChosen(0, pinned.schedule, pinned, None))
            if self._calibration_iterations <= 0 and not self.measured:
                self._skip_measuring(first)

    def begin(self) -> None:
        """The backward pass that completes an iteration's gradients is about to start."""
        self._synchronizer.begin_iteration()
        if not self.measured:
            self._stopwatch.start()

    def layer_done(self, layer: int) -> None:
        """A layer's gradients are complete; called for every layer, downwards."""
        segment = self._segment_of.get(layer)
        if segment is None:
            return
        if not self.measured:
            self._stopwatch.lap()
        self._synchronizer.gradients_ready(segment)

    def wait(self) -> CommReport:
        """Returns once the gradients are means over the ranks."""
        if not self.measured:
            self._stopwatch.lap()
        return self._synchronizer.wait()

    def after_update(self, iterations_done: int) -> None:
        """Between two iterations, the gradients used up: plans once enough has been measured; collective."""
        if self.measured:
            return
        self._times.append(self._stopwatch.laps())
        if len(self._times) >= self._calibration_iterations:
            self._plan_from_measurements(iterations_done)

    def adopt(self, text: str) -> None:
        """Takes over the plan that an earlier run measured, if it is one of this schedule; collective."""
        if self._communicator.size == 1 or not text or self._is_pinned:
            return
        plan = Plan.from_json(text)
        try:
            plan.check(self._segments)
        except CommError:
            return  # another net's plan: measure anew
        if plan.schedule == self._schedule:
            self._use(plan)

    def close(self) -> None:
        """Ends the exchange."""
        self._synchronizer.close()

    def _read_plan(self, path: str) -> Plan | None:
        """Rank 0's plan file for every rank; one rank alone checks it as well, though it has no use for it."""
        if not path:
            return None
        plan = None
        if self._communicator.rank == 0:
            plan = read_plan(path, self._segments, self._net.arena.data.element_size())
        return self._communicator.broadcast_object(plan)

    def _plan_from_measurements(self, iterations_done: int) -> None:
        """Rank 0's plan from the slowest rank's times and the measured cost of an all-reduce."""
        # A lap for each segment, downwards, then one for what backward does after the lowest.
        laps = [statistics.median(values) for values in zip(*self._times, strict=True)]
        laps = agree_times(self._communicator, laps)
        *downwards, tail = laps
        ready = ready_times(downwards[::-1])
        channel = self._communicator.duplicate()
        cost = measure_allreduce(channel, self._net.arena.diff[: self._net.arena.trainable])
        channel.close()
        plan = self._make_plan(self._schedule, ready, cost, sum(downwards) + tail)
        self._use(self._communicator.broadcast_object(plan))
        self._emit(PlanChosen(iterations_done, self._schedule, self.plan, cost))

    def _make_plan(self, schedule: str, ready: Sequence[float], cost: Cost, backward_end: float) -> Plan:
        return make_plan(
            schedule,
            self._segments,
            ready,
            cost,
            element_bytes=self._net.arena.data.element_size(),
            bucket_bytes=self._bucket_bytes,
            backward_end=backward_end,
        )

    def _use(self, plan: Plan) -> None:
        self._synchronizer.set_plan(plan)
        self.plan = plan
        self.measured = True
        self._times.clear()

    def _skip_measuring(self, schedule: str) -> None:
        self.measured = True
        if schedule != self._schedule:
            self._emit(
                Warned(
                    f"calibration_iterations is 0, so schedule '{self._schedule}' has nothing to plan with:"
                    f" gradients are sent as by '{schedule}'"
                )
            )


def requested_schedule(param: Any) -> str:
    """The schedule that a solver asks for; Caffe's `layer_wise_reduce: false` means one at the end."""
    comm = param.comm_param
    if not comm.HasField("schedule") and not param.layer_wise_reduce:
        return "single"
    name = type(comm).Schedule.Name(comm.schedule).lower()
    return "optimal" if name == "auto" else name
