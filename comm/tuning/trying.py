"""The second phase of a search: candidates run in turn, and plans are predicted again with what was seen of them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mgcaffe.comm.planning.forward_overlap import Overlap, overlapping, predict
from mgcaffe.comm.planning.plan import Plan
from mgcaffe.comm.planning.prediction import Channel
from mgcaffe.comm.planning.timings import IterationTimes, Timings
from mgcaffe.comm.tuning.calibration import agree_times
from mgcaffe.comm.tuning.candidates import Candidate, PlanningInput, find_candidates, find_further
from mgcaffe.comm.tuning.decision import Decision
from mgcaffe.comm.tuning.measuring import Measurements
from mgcaffe.comm.tuning.profiler import MeasuredIteration
from mgcaffe.comm.tuning.search_context import SearchContext
from mgcaffe.comm.tuning.settings import AUTO
from mgcaffe.comm.tuning.trials import Trial, Trials


@dataclass(frozen=True)
class _TurnBegun:
    """A turn of a plan that overlaps the forward pass, after the first of its two iterations."""

    times: IterationTimes | None


class Trying:
    """The phase in which the candidates are tried; creating it is a collective call.

    Args:
        context: what all phases share.
        found: what the first phase found; trials add to its profiler and its observations.
    """

    def __init__(self, context: SearchContext, found: Measurements) -> None:
        self._context = context
        self._found = found
        self._timings = found.timings
        self._channels = found.channels
        self._turn_begun: _TurnBegun | None = None
        self._last_ready: dict[str, list[float]] = {}  # by plan: when the last gradient was ready in each iteration
        candidates = self._find_candidates()
        if not context.settings.steps.trials:
            candidates = candidates[:1]
        self._trials = Trials(candidates, second_stage=context.settings.steps.second_stage)
        found.observations.begin_trials()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing (more) to try: then `decide`."""
        return self._trials.is_over

    def begin(self) -> None:
        """Set the plan of the next turn; a collective call."""
        self._context.synchronizer.set_plan(self._trials.current.plan)

    def record(self, iteration: MeasuredIteration) -> Decision | None:
        """Record an iteration and set the plan of the next one; after the last return the decision; collective."""
        plan = self._trials.current.plan
        if plan.overlaps_forward and self._turn_begun is None:
            self._turn_begun = _TurnBegun(iteration.times)  # the next forward pass finds groups on their way
            return None
        self._learn(plan, iteration)
        self._trials.record(self._seconds(plan, iteration), self._waited(iteration))
        self._turn_begun = None
        if self._trials.stage_is_over:
            self._end_stage()
            if self.is_over:
                return self.decide()
        self.begin()
        return None

    def skip_iteration(self) -> None:
        """Begin the present turn again: its iteration made no update."""
        self._turn_begun = None

    def decide(self) -> Decision:
        """Return the fastest plan and what it rests on; a collective call."""
        settings = self._context.settings
        results = self._context.communicator.broadcast_object(self._trials.results())
        best = results[0]
        plan = replace(best.candidate.plan, schedule=f"{AUTO}: {best.candidate.label}")
        timings = self._timings
        channel = next(each for each in self._channels if each.blocking == plan.blocking)
        if best.seconds and settings.steps.prediction_from_trials:
            timings = self._as_tried(best, timings, channel)
            plan = predict(plan, timings, channel)
        if settings.overlap is Overlap.ALWAYS and not plan.overlaps_forward:
            plan = predict(overlapping(plan), timings, channel)
        trials = results if len(results) > 1 else ()
        return Decision(plan, timings, self._found.costs, self._channels, trials)

    # -- one iteration -----------------------------------------------------------------------------------

    def _backward(self, plan: Plan, iteration: MeasuredIteration) -> float:
        """Return the seconds of the backward pass whose communication ended in an iteration."""
        if plan.overlaps_forward and self._context.settings.on_host:
            return iteration.report.backward_end
        return iteration.backward

    def _waited(self, iteration: MeasuredIteration) -> float:
        """Return the seconds that the computing thread waited for communication.

        Updates made while communication goes on are the same work under every plan. A GPU's laps are of its own clock,
        which the report does not use.
        """
        return iteration.report.exposed_s if self._context.settings.on_host else iteration.laps[-1]

    def _learn(self, plan: Plan, iteration: MeasuredIteration) -> None:
        """Add an iteration to what predictions are made from."""
        on_host = self._context.settings.on_host
        if not (plan.overlaps_forward and on_host):
            if on_host:
                self._found.observations.add(plan, iteration.backward, iteration.report)
            if len(plan.groups) == 1:
                self._found.profiler.record_trial(iteration)
        self._last_ready.setdefault(plan.hash, []).append(sum(iteration.laps[:-2]))

    def _seconds(self, plan: Plan, iteration: MeasuredIteration) -> float:
        """Return what an iteration counts for: its backward pass, and all that communication adds to the rest of it."""
        seconds = self._backward(plan, iteration) + self._waited(iteration)
        total = self._total(plan, iteration.times)
        if total is None or self._found.rest_of_iteration is None:
            return seconds
        # What communication costs the forward pass counts as well; what was waited for counts in any case.
        return max(total - self._found.rest_of_iteration, seconds)

    def _total(self, plan: Plan, times: IterationTimes | None) -> float | None:
        """Return the seconds of a whole iteration, with its forward pass; None where that was not measured."""
        if times is None:
            return None
        if not plan.overlaps_forward:
            return times.total
        before = self._turn_begun.times if self._turn_begun is not None else None
        if before is None or self._timings.forward is None:
            return None
        return times.overlapped(before, self._timings.forward.forward)

    # -- between two stages ------------------------------------------------------------------------------

    def _end_stage(self) -> None:
        """Agree on what was measured, predict with it, and add plans that it makes promising; a collective call."""
        steps = self._context.settings.steps
        is_last = self._trials.is_last_stage
        self._trials.agree(agree_times(self._context.communicator, self._trials.local_times()))
        if not steps.prediction_from_trials:
            return
        self._timings = self._timings_from_trials()
        self._found.observations.set_undisturbed(self._timings.total)
        self._channels = self._found.observations.refine(
            self._context.communicator, self._found.measured_channels
        )  # fmt: skip
        revised: tuple[list[Candidate], list[Candidate]] | None = None
        if self._context.communicator.rank == 0:
            known = [candidate.on(self._channels, self._timings) for candidate in self._trials.candidates]
            wants_more = steps.further_candidates and not is_last
            revised = known, find_further(known, self._planning_input()) if wants_more else []
        revised = self._context.communicator.broadcast_object(revised)
        assert revised is not None
        self._trials.revise(*revised)

    def _timings_from_trials(self) -> Timings:
        """Return the latest times of the undisturbed passes; a collective call."""
        timings = self._found.profiler.timings(self._context.communicator)
        if self._timings.forward is None or timings.forward is None:
            # Without times of the forward pass no candidate overlaps it, and that stays so.
            return replace(timings, forward=self._timings.forward)
        return timings

    def _as_tried(self, trial: Trial, timings: Timings, channel: Channel) -> Timings:
        """Return timings by which a plan's gradients are ready when they were in its last trials; collective."""
        plan = trial.candidate.plan
        ready = statistics.median(self._last_ready[plan.hash][-len(trial.seconds) :])
        (seen,) = agree_times(self._context.communicator, [ready])
        alone = sum(timings.backward_times)
        added = max(group.ready_at for group in plan.groups) - alone
        # Communication, which adds the rest, ran beside all layers at most.
        undisturbed = max(seen - added, (1 - channel.slowdown) * seen)
        return timings.scaled(undisturbed / alone) if alone > 0 else timings

    # -- finding candidates ------------------------------------------------------------------------------

    def _find_candidates(self) -> Sequence[Candidate]:
        """Return rank 0's candidates on every rank; a collective call."""
        candidates = find_candidates(self._planning_input()) if self._context.communicator.rank == 0 else None
        candidates = self._context.communicator.broadcast_object(candidates)
        assert candidates
        return candidates

    def _planning_input(self) -> PlanningInput:
        """Return what is known so far; without times of the forward pass plans that overlap it can't be compared."""
        settings = self._context.settings
        return PlanningInput(
            self._context.segments,
            self._timings,
            self._channels,
            settings.element_bytes,
            settings.bucket_bytes,
            settings.tried_overlap if self._timings.forward is not None else Overlap.NEVER,
        )
