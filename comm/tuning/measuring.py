"""The first phase of a search: iterations are measured, then the cost of an all-reduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mgcaffe.comm.planning.cost import AllReduceCosts
from mgcaffe.comm.planning.forward_overlap import Overlap, predict
from mgcaffe.comm.planning.plan import ready_times
from mgcaffe.comm.planning.prediction import Channel
from mgcaffe.comm.planning.timings import Timings
from mgcaffe.comm.tuning.decision import Decision
from mgcaffe.comm.tuning.observations import Observations
from mgcaffe.comm.tuning.profiler import MeasuredIteration, Profiler
from mgcaffe.comm.tuning.search_context import SearchContext

_PROBE_GROUPS = 5
"""How many groups the plans have with which contention is measured."""


@dataclass(frozen=True)
class Measurements:
    """What the first phase found.

    Attributes:
        timings: of the passes.
        costs: of an all-reduce, measured while nothing else ran.
        measured_channels: the ways of waiting with these costs.
        channels: the same, corrected by what was seen in training.
        profiler: its undisturbed iterations, to which trials add theirs.
        observations: of all-reduces in training, to which trials add theirs.
        rest_of_iteration: the seconds of an iteration on this rank without its backward pass and the waiting for
            gradients; None where that was not measured.
    """

    timings: Timings
    costs: AllReduceCosts
    measured_channels: Sequence[Channel]
    channels: Sequence[Channel]
    profiler: Profiler
    observations: Observations
    rest_of_iteration: float | None


class Measuring:
    """The phase in which iterations run by a single group, and by a few groups in each way of waiting.

    Args:
        context: what all phases share.
        measure: measures the costs of an all-reduce; the result is the same on every rank.
    """

    def __init__(self, context: SearchContext, measure: Callable[[], AllReduceCosts]) -> None:
        self._context = context
        self._measure = measure
        settings, total_bytes = context.settings, context.total_bytes
        probes = [
            context.plan_by_size("threshold", total_bytes / _PROBE_GROUPS, blocking=blocking)
            for blocking in settings.ways_of_waiting
        ]
        alone = context.plan_by_size("single", total_bytes, blocking=False)
        self._profiler = Profiler(settings.calibration_iterations, alone, probes, warm_up=settings.steps.warm_up)

    def begin(self) -> None:
        """Set the first plan; a collective call."""
        self._set_plan()

    def record(self, iteration: MeasuredIteration) -> Measurements | None:
        """Record an iteration and set the plan of the next one; after the last return what was found; collective."""
        self._profiler.record(iteration)
        if self._profiler.is_over:
            return self._evaluate()
        self._set_plan()
        return None

    def _set_plan(self) -> None:
        afterwards = self._profiler.is_undisturbed
        self._context.synchronizer.set_plan(self._profiler.current, afterwards=afterwards, one_by_one=True)

    def _evaluate(self) -> Measurements:
        settings, communicator = self._context.settings, self._context.communicator
        timings = self._profiler.timings(communicator)
        rest_of_iteration = self._profiler.rest_of_iteration() if timings.forward is not None else None
        costs = self._measure()
        measured = [
            Channel(blocking, costs.beside(blocking), costs.alone(blocking)) for blocking in settings.ways_of_waiting
        ]
        if settings.on_host:
            observations = self._profiler.observations(timings, settings.steps)
            channels = observations.refine(communicator, measured)
        else:
            observations = Observations(timings.total, settings.steps)
            if settings.steps.contention:
                measured = [self._profiler.slowed(communicator, channel) for channel in measured]
            channels = measured
        return Measurements(timings, costs, measured, channels, self._profiler, observations, rest_of_iteration)


def decide_without_trials(context: SearchContext, found: Measurements) -> Decision:
    """Return the plan of a schedule other than `auto`, as rank 0 makes it; a collective call."""
    settings, channel = context.settings, found.channels[0]
    ready = ready_times(found.timings.backward_times)
    plan = context.make_plan(settings.schedule, ready, channel.beside, settings.bucket_bytes)
    plan = replace(plan, overlaps_forward=settings.overlap is Overlap.ALWAYS)
    plan = context.communicator.broadcast_object(predict(plan, found.timings, channel))
    return Decision(plan, found.timings, found.costs, found.channels)
