"""Averages the gradients over the ranks while backward runs, by a plan found in the first iterations.

Until a plan is found (`comm/tuning`) the gradients travel by those that are being measured or tried, so training
goes on meanwhile and nothing is computed twice. Which plan is in use does not change the means.
"""

from __future__ import annotations

import torch

from mgcaffe.comm import CommReport, Communicator, MergedAllReduce, NoSynchronizer, Plan, Synchronizer
from mgcaffe.comm.exchange.comm_report import OnGroup
from mgcaffe.comm.planning.cost import AllReduceCosts
from mgcaffe.comm.planning.forward_overlap import Overlap
from mgcaffe.comm.planning.timings import IterationTimes
from mgcaffe.comm.tuning.calibration import measure_allreduce_costs
from mgcaffe.comm.tuning.decision import Decision
from mgcaffe.comm.tuning.tuner import Tuner
from mgcaffe.errors import CommError
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.events import Emit, Noted, PlanChosen
from mgcaffe.solvers.exchange.allreduce_costs import AllReduceCostSource
from mgcaffe.solvers.exchange.exchange_settings import ExchangeSettings
from mgcaffe.solvers.exchange.gradient_buffer import GradientBuffer
from mgcaffe.solvers.monitor.stopwatch import Stopwatch


class GradientAveraging:
    """The exchange of one buffer of gradients.

    Args:
        buffer: the gradients.
        communicator: the ranks; with one rank nothing is exchanged.
        param: the SolverParameter message.
        schedule: how gradients are merged; None: as the solver says (`exchange_settings.py`).
        emit: takes the events.

    Attributes:
        plan: the plan to be stored: one that was found, pinned, or taken over from a snapshot; else None.
        on_ready: is called with the place (offset, count) of gradients in the buffer that are complete on this rank,
            before they are sent; None: there is no such function.

    Raises:
        CommError: an unknown schedule; (on rank 0, which alone reads it) a plan file that doesn't fit the buffer.
        DataError: on rank 0, a plan file that cannot be read.
        UsageError: an emulated link that is not understood.
    """

    def __init__(
        self,
        buffer: GradientBuffer,
        communicator: Communicator,
        param: SolverParameter,
        schedule: str | None,
        emit: Emit,
    ) -> None:
        self._buffer = buffer
        self._communicator = communicator
        self._settings = ExchangeSettings(param, schedule, buffer.is_on_host, divides=not buffer.is_divided)
        self._emit = emit
        self._iterations_done = 0
        self.on_ready: OnGroup | None = None
        self._segments = buffer.segments
        self._stopwatch = Stopwatch(buffer.flat.device)
        self._laps_wanted = False
        self._report = CommReport()
        self._times: IterationTimes | None = None
        self._tuner: Tuner | None = None
        self._element_bytes: int = buffer.flat.element_size()
        pinned = self._settings.read_plan(communicator, self._segments, self._element_bytes)
        self._is_pinned = pinned is not None
        self._synchronizer: Synchronizer = NoSynchronizer()
        self._plan: Plan | None = None
        if communicator.size > 1:
            self._start(pinned)

    @property
    def plan(self) -> Plan | None:
        """The plan to be stored with a snapshot."""
        return self._tuner.chosen_plan if self._tuner is not None else self._plan

    @property
    def is_alone(self) -> bool:
        """Whether there is one rank, which exchanges nothing."""
        return self._communicator.size == 1

    @property
    def is_searching(self) -> bool:
        """Whether plans are being measured and tried."""
        return self._tuner is not None and self._tuner.is_searching

    @property
    def wants_times(self) -> bool:
        """Whether this iteration's `IterationTimes` are wanted."""
        return self._settings.overlap is not Overlap.NEVER and self.is_searching and self._buffer.is_on_host

    @property
    def plan_in_use(self) -> Plan | None:
        """By which gradients travel at present."""
        return self._synchronizer.plan

    @property
    def overlaps_forward(self) -> bool:
        """Whether the plan in use leaves its last groups to the next forward pass."""
        plan = self.plan_in_use
        return plan is not None and plan.overlaps_forward

    def begin(self) -> None:
        """Begin an iteration of the exchange, before the backward pass that completes its gradients."""
        self._times = None
        self._synchronizer.begin_iteration()
        self._laps_wanted = self.is_searching
        if self._laps_wanted:
            self._stopwatch.start()

    def gradients_ready(self, segment: int, count: int = 1) -> None:
        """Hand over the complete gradients of `count` segments from this one upwards; called downwards, for all.

        While `is_searching` one at a time: the times at which they come are measured.
        """
        if self._laps_wanted:
            self._stopwatch.lap()
        if self.on_ready is not None:
            for each in reversed(self._segments[segment : segment + count]):
                self.on_ready(each.offset, each.count)
        self._synchronizer.gradients_ready(segment, count)

    def backward_done(self) -> None:
        """Take note that the backward pass has ended; the rest of the communication is waited for later."""
        if self._laps_wanted:
            self._stopwatch.lap()
        self._synchronizer.backward_done()

    def wait(self, on_group: OnGroup | None = None) -> CommReport:
        """Return once the gradients are means over the ranks; `on_group` gets each group as soon as it is."""
        self._report = self._synchronizer.wait(on_group)
        if self._laps_wanted:
            self._stopwatch.lap()
        return self._report

    def average(self, values: torch.Tensor) -> None:
        """Replace values that no segment holds by their means over the ranks, at once; collective, after `wait`."""
        if not self.is_alone:
            self._communicator.allreduce(values)
            values.div_(self._communicator.size)

    def defer(self, on_group: OnGroup) -> None:
        """Leave the rest to `wait_for_segment` and `finish`, which give its groups to `on_group`."""
        self._synchronizer.defer(on_group)
        if self._laps_wanted:
            self._stopwatch.lap()

    def wait_for_segment(self, segment: int) -> None:
        """Return once the gradients of a segment have been given to `on_group`, if deferred."""
        self._synchronizer.wait_for_segment(segment)

    def finish(self) -> CommReport | None:
        """Return once all that was deferred has been given to `on_group`; None where nothing was."""
        report = self._synchronizer.finish()
        if report is not None:
            self._report = report
        return report

    def iteration_took(self, times: IterationTimes) -> None:
        """Keep what was measured of this iteration, for `after_update`."""
        self._times = times

    def after_update(self, iterations_done: int) -> None:
        """Let the tuner choose another plan between two iterations, the gradients used up; collective."""
        self._iterations_done = iterations_done
        if self._tuner is not None:
            laps = self._stopwatch.laps() if self._laps_wanted else []
            self._tuner.iteration_done(laps, self._report, self._times)

    def iteration_skipped(self) -> None:
        """Do instead of `after_update` where all ranks discarded the gradients."""
        if self._tuner is not None:
            self._tuner.iteration_skipped()

    def adopt(self, text: str) -> None:
        """Take over the plan that an earlier run found, if it is one of this schedule; collective."""
        if self._communicator.size == 1 or self._is_pinned or not text:
            return
        plan = Plan.from_json(text)
        try:
            plan.check(self._segments)
        except CommError:
            return  # another net's plan: measure anew
        if plan.schedule.partition(":")[0] != self._settings.schedule:
            return
        if not self._settings.merges_as(plan, self._segments, self._element_bytes):
            return  # of another bucket_mb
        plan = self._settings.allowed(plan)
        if self._tuner is not None:
            self._tuner.adopt(plan)
        else:
            self._synchronizer.set_plan(plan)
            self._plan = plan

    def close(self) -> None:
        """End the exchange."""
        self._synchronizer.close()

    # -- called by the tuner -------------------------------------------------------------------------------

    def plan_decided(self, decision: Decision) -> None:
        """Emit the plan that was found."""
        cost = decision.costs.busy_polled
        self._emit(PlanChosen(self._iterations_done, self._settings.schedule, decision.plan, cost, decision))

    def plan_outdated(self, exposed: float, expected: float) -> None:
        """Say that communication is exposed for longer than the plan predicted."""
        self._emit(
            Noted(
                f"Communication is waited for {exposed * 1e3:.3f} ms per iteration where {expected * 1e3:.3f} ms"
                " were expected: measuring and planning again"
            )
        )

    # -- the rest ----------------------------------------------------------------------------------------

    def _start(self, pinned: Plan | None) -> None:
        self._settings.choose_transport(self._communicator, self._buffer.flat.device, self._emit)
        self._settings.announce(self._communicator, self._emit, pinned)
        if pinned is not None:
            pinned = self._settings.allowed(pinned)
        plan = pinned or self._settings.first_plan(self._segments, self._element_bytes)
        self._synchronizer = MergedAllReduce(self._communicator, plan, transfer=self._settings.transfer)
        self._synchronizer.start(self._buffer.flat, self._segments)
        if pinned is not None:
            self._plan = pinned
            self._emit(PlanChosen(0, pinned.schedule, pinned, None))
        elif not self._segments:
            self._plan = plan  # all parameters are frozen: there is nothing to plan
        else:
            self._begin_search(plan)

    def _begin_search(self, plan: Plan) -> None:
        """Begin to measure, unless nothing is to be measured; then the first plan stays."""
        cost_file, transport = self._settings.cost_file, self._settings.transport(self._buffer.dtype)
        source = AllReduceCostSource(self._communicator, cost_file, transport, self._measure_allreduce, self._emit)
        if self._settings.prevents_measuring:
            self._plan = plan
            self._settings.warn_of_schedule(self._emit)
            return
        settings = self._settings.tuner_settings(self._element_bytes)
        self._tuner = Tuner(self._communicator, self._synchronizer, self._segments, settings, source.find, self)
        self._tuner.search()

    def _measure_allreduce(self) -> AllReduceCosts:
        for segment in range(len(self._segments)):
            self._synchronizer.wait_for_segment(segment)  # measuring writes over the gradients
        # Measuring puts the values back; `data` leaves PyTorch's count of writes, by which the updater knows its step.
        gradients = self._buffer.trainable.data
        return measure_allreduce_costs(
            self._communicator, gradients, transfer=self._settings.transfer, segments=self._segments
        )
