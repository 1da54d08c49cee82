"""Averages the gradients over the ranks while backward runs, by a plan found on the first iterations.

Until a plan is found (`comm.tuning.tuner`) the gradients travel by those that are being measured or tried, so training
goes on meanwhile and nothing is computed twice. Which plan is in use does not change the means.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgcaffe.comm import (
    AffineCost,
    CommReport,
    Communicator,
    MergedAllReduce,
    NoSynchronizer,
    Plan,
    Segment,
    Synchronizer,
    make_plan,
    read_plan,
)
from mgcaffe.comm.exchange.comm_report import OnGroup
from mgcaffe.comm.exchange.emulation import parse_link
from mgcaffe.comm.exchange.sums.base import Wire
from mgcaffe.comm.exchange.sums.hierarchy import number_hosts
from mgcaffe.comm.planning.cost import WireCosts
from mgcaffe.comm.planning.forward_overlap import Overlap, overlapping, waiting
from mgcaffe.comm.planning.schedules import check_schedule
from mgcaffe.comm.planning.timings import IterationTimes
from mgcaffe.comm.tuning.calibration import measure_wire
from mgcaffe.comm.tuning.decision import Decision
from mgcaffe.comm.tuning.settings import AUTO, TunerSettings
from mgcaffe.comm.tuning.tuner import Tuner
from mgcaffe.engine import Net
from mgcaffe.errors import CommError
from mgcaffe.prototxt import CommParameter, SolverParameter
from mgcaffe.solvers.events import Emit, Noted, PlanChosen, Warned
from mgcaffe.solvers.exchange.link_costs import WireCostSource
from mgcaffe.solvers.monitor.stopwatch import Stopwatch

# Schedules that merge by the layers' sizes alone; the others start as `single`.
_NEED_NO_MEASURING = ("single", "wfbp", "threshold")


class GradientAveraging:
    """The exchange of one net's gradients.

    Args:
        net: the training net.
        communicator: the ranks; with one rank nothing is exchanged.
        param: the SolverParameter message; its comm_param says over how many iterations the backward times are
            measured (0: not at all), how large the buckets of the schedule `threshold` are, which plan file, if
            any, is used instead of a schedule, which file holds the costs of an all-reduce, which link is
            emulated, and whether nothing is to be measured.
        schedule: how gradients are merged (`comm.planners.SCHEDULES`, or `auto`); None: as the solver says.
        emit: takes the events.

    Attributes:
        plan: the plan to be stored: one that was found, pinned, or taken over from a snapshot; else None.
        on_ready: is called with the place (offset, count) of gradients in the arena that are complete on this rank,
            before they are sent; None: nobody.

    Raises:
        CommError: an unknown schedule; (on rank 0, which alone reads it) a plan file that doesn't fit the net.
        DataError: on rank 0, a plan file that cannot be read.
        UsageError: an emulated link that is not understood.
    """

    def __init__(
        self,
        net: Net,
        communicator: Communicator,
        param: SolverParameter,
        schedule: str | None,
        emit: Emit,
    ) -> None:
        self._net = net
        self._communicator = communicator
        self._schedule = str(schedule or requested_schedule(param))
        self._settings = param.comm_param
        self._clips: bool = param.clip_gradients >= 0
        self._overlap = self._requested_overlap(net.device.type == "cpu")
        self._emit = emit
        self._iterations_done = 0
        self.on_ready: OnGroup | None = None
        check_schedule(self._schedule, AUTO)
        segments = net.arena.segments()
        self._segments = [Segment(name, offset, count) for name, _, offset, count in segments]
        self._segment_of = {layer: index for index, (_, layer, _, _) in enumerate(segments)}
        self._stopwatch = Stopwatch(net.device)
        self._laps_wanted = False
        self._report = CommReport()
        self._times: IterationTimes | None = None
        self._tuner: Tuner | None = None
        link = parse_link(self._settings.emulate_link) if self._settings.emulate_link else None
        self._wire = requested_wire(self._settings, link)
        pinned = self._read_plan(self._settings.plan_file)
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
        return self._overlap is not Overlap.NEVER and self.is_searching and self._net.device.type == "cpu"

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
        """The backward pass that completes an iteration's gradients is about to start."""
        self._times = None
        self._synchronizer.begin_iteration()
        self._laps_wanted = self.is_searching
        if self._laps_wanted:
            self._stopwatch.start()

    def layer_done(self, layer: int) -> None:
        """A layer's gradients are complete; called for every layer, downwards."""
        segment = self._segment_of.get(layer)
        if segment is None:
            return
        if self._laps_wanted:
            self._stopwatch.lap()
        if self.on_ready is not None:
            self.on_ready(self._segments[segment].offset, self._segments[segment].count)
        self._synchronizer.gradients_ready(segment)

    def backward_done(self) -> None:
        """The backward pass has ended; the rest of the communication is waited for later."""
        if self._laps_wanted:
            self._stopwatch.lap()
        self._synchronizer.backward_done()

    def wait(self, on_group: OnGroup | None = None) -> CommReport:
        """Returns once the gradients are means over the ranks; `on_group` gets each group as soon as it is."""
        self._report = self._synchronizer.wait(on_group)
        if self._laps_wanted:
            self._stopwatch.lap()
        return self._report

    def defer(self, on_group: OnGroup) -> None:
        """Leaves the tail of communication to `settle` and `finish`, which give its groups to `on_group`."""
        self._synchronizer.defer(on_group)
        if self._laps_wanted:
            self._stopwatch.lap()

    def settle(self, segment: int) -> None:
        """Returns once the gradients of a segment of the arena have been given to `on_group`, if deferred."""
        self._synchronizer.settle(segment)

    def finish(self) -> CommReport | None:
        """Returns once all that was deferred has been given to `on_group`; None where nothing was."""
        report = self._synchronizer.finish()
        if report is not None:
            self._report = report
        return report

    def iteration_took(self, times: IterationTimes) -> None:
        """Takes what was measured of this iteration, for `after_update`."""
        self._times = times

    def after_update(self, iterations_done: int) -> None:
        """Between two iterations, the gradients used up: may choose another plan; collective."""
        self._iterations_done = iterations_done
        if self._tuner is not None:
            laps = self._stopwatch.laps() if self._laps_wanted else []
            self._tuner.iteration_done(laps, self._report, self._times)

    def iteration_skipped(self) -> None:
        """Instead of `after_update`: on all ranks the gradients were given up."""
        if self._tuner is not None:
            self._tuner.iteration_skipped()

    def adopt(self, text: str) -> None:
        """Takes over the plan that an earlier run found, if it is one of this schedule; collective."""
        if self._communicator.size == 1 or self._is_pinned or not text:
            return
        plan = Plan.from_json(text)
        try:
            plan.check(self._segments)
        except CommError:
            return  # another net's plan: measure anew
        if plan.schedule.partition(":")[0] != self._schedule:
            return
        plan = self._allowed(plan)
        if self._tuner is not None:
            self._tuner.adopt(plan)
        else:
            self._synchronizer.set_plan(plan)
            self._plan = plan

    def close(self) -> None:
        """Ends the exchange."""
        self._synchronizer.close()

    # -- what a tuner tells ------------------------------------------------------------------------------

    def plan_decided(self, decision: Decision) -> None:
        """A plan was found."""
        self._emit(
            PlanChosen(self._iterations_done, self._schedule, decision.plan, decision.costs.hurried, decision)
        )  # fmt: skip

    def plan_outdated(self, exposed: float, expected: float) -> None:
        """The plan no longer holds what it promised."""
        self._emit(
            Noted(
                f"Communication is waited for {exposed * 1e3:.3f} ms an iteration where {expected * 1e3:.3f} ms"
                " were expected: measuring and planning again"
            )
        )

    # -- the rest ----------------------------------------------------------------------------------------

    def _start(self, pinned: Plan | None) -> None:
        if self._settings.emulate_link:
            self._emit(
                Noted(
                    f"EMULATED LINK {self._settings.emulate_link}: each all-reduce of gradients sleeps until it"
                    " has taken a + bM seconds; times of this run are no measurements of a network"
                )
            )
        self._warn_of_settings()
        first = self._schedule if self._schedule in _NEED_NO_MEASURING else "single"
        pinned = self._allowed(pinned) if pinned is not None else None
        guess = self._guess(first)
        plan = pinned or (overlapping(guess) if self._overlap is Overlap.ALWAYS else guess)
        self._synchronizer = MergedAllReduce(self._communicator, plan, wire=self._wire)
        self._synchronizer.start(self._net.arena.diff, self._segments)
        if pinned is not None:
            self._plan = pinned
            self._emit(PlanChosen(0, pinned.schedule, pinned, None))
        elif not self._segments:
            self._plan = plan  # all parameters are frozen: there is nothing to plan
        else:
            self._tuner = self._make_tuner()
            self._begin_search(first, plan)

    def _requested_overlap(self, on_host: bool) -> Overlap:
        """Whether the last groups may travel beside the next forward pass: `auto` tries it where nobody says."""
        if self._clips:
            return Overlap.NEVER
        if self._settings.HasField("overlap_forward"):
            return Overlap.ALWAYS if self._settings.overlap_forward else Overlap.NEVER
        return Overlap.TRY if self._schedule == AUTO and on_host else Overlap.NEVER

    def _allowed(self, plan: Plan) -> Plan:
        """A plan that was found elsewhere, with what this solver says of `overlap_forward`, if it says anything."""
        if self._clips or self._settings.HasField("overlap_forward"):
            return overlapping(plan) if self._overlap is Overlap.ALWAYS else waiting(plan)
        return plan

    def _warn_of_settings(self) -> None:
        """Tells of what was asked for and has no effect here."""
        if self._wire.hierarchical:
            hosts = len(set(number_hosts(self._communicator, self._wire.hosts)))
            if hosts == 1 or hosts == self._communicator.size:
                where = "all ranks run on one host" if hosts == 1 else "each rank runs on a host of its own"
                self._emit(Warned(f"hierarchical has no effect: {where}"))
        if self._settings.overlap_forward and self._clips:
            self._emit(
                Warned(
                    "overlap_forward has no effect: clip_gradients needs all gradients before the first update"
                )
            )  # fmt: skip

    def _make_tuner(self) -> Tuner:
        dtype = str(self._net.arena.diff.dtype).removeprefix("torch.")
        on_host = self._net.device.type == "cpu"
        transport = f"{'host memory' if on_host else 'staged from a GPU'}, {dtype}"
        if self._wire.type != "float32":
            transport += f" as {self._wire.type}"
        if self._wire.hierarchical:
            transport += ", hierarchical"
        if self._wire.link is not None:
            transport += f", emulated link {self._settings.emulate_link}"
        source = WireCostSource(
            self._communicator, self._settings.cost_file, transport, self._measure_wire, self._emit
        )  # fmt: skip
        settings = TunerSettings(
            self._schedule,
            self._net.arena.data.element_size(),
            self._settings.calibration_iterations,
            self._bucket_bytes,
            on_host,
            self._overlap,
        )
        return Tuner(self._communicator, self._synchronizer, self._segments, settings, source.find, self)

    def _begin_search(self, first: str, plan: Plan) -> None:
        """Measures, unless nothing is to be measured; then the first plan stays."""
        assert self._tuner is not None
        if self._settings.calibration_iterations > 0 and not self._settings.deterministic:
            self._tuner.search()
            return
        self._tuner = None
        self._plan = plan
        if first != self._schedule:
            why = "deterministic is set" if self._settings.deterministic else "calibration_iterations is 0"
            self._emit(
                Warned(
                    f"{why}, so schedule '{self._schedule}' has nothing to plan with:"
                    f" gradients are sent as by '{first}'"
                )
            )

    def _measure_wire(self) -> WireCosts:
        for segment in range(len(self._segments)):
            self._synchronizer.settle(segment)  # measuring writes over the gradients
        flat = self._net.arena.diff[: self._net.arena.trainable]
        return measure_wire(self._communicator, flat, wire=self._wire, segments=self._segments)

    def _read_plan(self, path: str) -> Plan | None:
        """Rank 0's plan file for every rank; one rank alone checks it as well, though it has no use for it."""
        if not path:
            return None
        plan = None
        if self._communicator.rank == 0:
            plan = read_plan(path, self._segments, self._net.arena.data.element_size())
        return self._communicator.broadcast_object(plan)

    @property
    def _bucket_bytes(self) -> float:
        return float(self._settings.bucket_mb * 2**20)

    def _guess(self, schedule: str) -> Plan:
        """A plan that needs no measuring."""
        nothing: Sequence[float] = [0.0] * len(self._segments)
        return make_plan(
            schedule,
            self._segments,
            nothing,
            AffineCost(0.0, 0.0),
            element_bytes=self._net.arena.data.element_size(),
            bucket_bytes=self._bucket_bytes,
        )


def requested_schedule(param: SolverParameter) -> str:
    """The schedule that a solver asks for; Caffe's `layer_wise_reduce: false` means one at the end."""
    comm = param.comm_param
    if not comm.HasField("schedule") and not param.layer_wise_reduce:
        return "single"
    return str(type(comm).Schedule.Name(comm.schedule)).lower()


def requested_wire(comm: CommParameter, link: AffineCost | None) -> Wire:
    """How a comm_param asks for gradients to travel, on a link that is emulated, or not."""
    return Wire(type(comm).WireType.Name(comm.allreduce_type).lower(), comm.hierarchical, link=link)
