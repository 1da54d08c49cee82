"""Finds the plan while training goes on: measures, plans, tries (`auto`), and notices when it no longer holds.

    tuner = Tuner(communicator, synchronizer, segments, settings, measure, listener)
    every iteration: the backward pass with its communication, then
        tuner.iteration_done(laps, report)          # may give the synchronizer another plan

Nothing is computed twice: gradients travel by whatever plan is being looked at, and the means are the same. All
ranks call alike; rank 0's conclusions hold.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from mgcaffe.comm.exchange.comm_report import CommReport
from mgcaffe.comm.exchange.synchronizer import Synchronizer
from mgcaffe.comm.planning.cost import AffineCost, AllReduceCosts, Cost
from mgcaffe.comm.planning.forward_overlap import Overlap, overlapping, predict
from mgcaffe.comm.planning.plan import Plan, Segment, ready_times
from mgcaffe.comm.planning.prediction import Channel
from mgcaffe.comm.planning.schedules import DEFAULT_BUCKET_BYTES, Schedule, make_plan
from mgcaffe.comm.planning.timings import IterationTimes, Timings
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.tuning.calibration import agree_times
from mgcaffe.comm.tuning.candidates import Candidate, find_candidates, find_more
from mgcaffe.comm.tuning.drift import DriftWatch
from mgcaffe.comm.tuning.observations import Observations
from mgcaffe.comm.tuning.profiler import Profiler
from mgcaffe.comm.tuning.trials import Trial, Trials

AUTO = Schedule.AUTO.value
_PROBE_GROUPS = 5


@dataclass(frozen=True)
class TunerSettings:
    """How a plan is looked for.

    Attributes:
        schedule: a name in `planners.SCHEDULES`, or `auto`.
        element_bytes: the size of a gradient.
        calibration_iterations: how many iterations are measured before planning.
        bucket_bytes: the bucket of the schedule `threshold`.
        on_host: whether gradients lie in the host's memory.
        overlap: whether the last groups may travel beside the next forward pass; `TRY` is for `auto`, on the host.
    """

    schedule: str
    element_bytes: int
    calibration_iterations: int
    bucket_bytes: float = DEFAULT_BUCKET_BYTES
    on_host: bool = True
    overlap: Overlap = Overlap.NEVER


@dataclass(frozen=True)
class Decision:
    """The plan that was found, and what it rests on.

    Attributes:
        plan: with its predicted times.
        timings: of the backward pass; of `auto`, as the chosen plan's trials found it.
        wire: the costs of an all-reduce, measured while nothing else ran.
        channels: the ways of waiting, with the contention that was measured; of `auto`, as the trials found them.
        trials: of `auto`, the chosen plan's first; otherwise empty.
    """

    plan: Plan
    timings: Timings
    wire: AllReduceCosts
    channels: Sequence[Channel]
    trials: Sequence[Trial] = ()

    @property
    def predicted_from(self) -> str:
        """Return what the plan's times were predicted from: `calibration`, or `trials`, which ran after it."""
        return "trials" if self.trials else "calibration"


class TunerListener(Protocol):
    """Who wants to know what a tuner does."""

    def plan_decided(self, decision: Decision) -> None:
        """A plan holds from the next iteration on; called on every rank."""

    def plan_outdated(self, exposed: float, expected: float) -> None:
        """Seconds waited for communication are above what was expected; a new plan is looked for."""


class Tuner:
    """The plan of one synchronizer.

    Args:
        communicator: the ranks; used between iterations.
        synchronizer: what the plans are given to; it has been started.
        segments: its layers.
        settings: how to look for a plan.
        measure: gives the costs of an all-reduce, the same on every rank; with True it must measure them anew.
        listener: is told.

    Attributes:
        settled: the plan that was found, or taken over; None until then. While another one is looked for it is
            still the one to be stored.
        is_searching: whether plans are being measured or tried, which takes laps.
    """

    def __init__(
        self,
        communicator: Communicator,
        synchronizer: Synchronizer,
        segments: Sequence[Segment],
        settings: TunerSettings,
        measure: Callable[[bool], AllReduceCosts],
        listener: TunerListener,
    ) -> None:
        self._communicator = communicator
        self._synchronizer = synchronizer
        self._segments = list(segments)
        self._settings = settings
        self._measure = measure
        self._listener = listener
        self._profiler: Profiler | None = None
        self._measured: Profiler | None = None  # the one that is over; learns from the trials
        self._ready: dict[str, list[float]] = {}  # by plan: when the last gradient was, in each iteration of a trial
        self._besides: float | None = None
        self._trials: Trials | None = None
        self._is_under_way = False
        self._before: IterationTimes | None = None  # of the first iteration of a turn that takes two
        self._channels: Sequence[Channel] = ()  # before anything was seen of them in training
        self._observations = Observations(0.0)
        self._watch: DriftWatch | None = DriftWatch() if settings.schedule == AUTO else None
        self._again = False
        self._found: Decision | None = None
        self.settled: Plan | None = None

    @property
    def is_searching(self) -> bool:
        """Whether `iteration_done` needs laps."""
        return self._profiler is not None or self._trials is not None

    def search(self) -> None:
        """Begin to look for a plan; a collective call, between iterations."""
        ways = self._ways()
        total = sum(segment.count for segment in self._segments) * self._settings.element_bytes
        probes = [self._guess("threshold", total / _PROBE_GROUPS, blocking) for blocking in ways]
        alone = self._guess("single", total, False)
        self._profiler = Profiler(self._settings.calibration_iterations, alone, probes)
        self._trials = None
        self._synchronizer.set_plan(self._profiler.current, afterwards=self._profiler.is_undisturbed)

    def settle(self, plan: Plan) -> None:
        """Use a plan that was found earlier; a collective call, between iterations."""
        self._profiler = self._trials = None
        self._is_under_way = False
        self._synchronizer.set_plan(plan)
        self.settled = plan
        if self._watch is not None:
            self._watch.expect(None, plan.backward_end)

    def iteration_done(self, laps: Sequence[float], report: CommReport, times: IterationTimes | None = None) -> None:
        """Note an iteration and choose the plan of the next one; collective, between iterations.

        Args:
            laps: as for `Profiler.record`; not read unless `is_searching`.
            report: the communication that ended in the iteration.
            times: what else was measured of it; without them no plan is tried that overlaps the forward pass.
        """
        if self._profiler is not None:
            self._profiler.record(laps, report, self._wanted(times))
            self._go_on_measuring(self._profiler)
        elif self._trials is not None:
            self._try(self._trials, laps, report, times)
        elif self._watch is not None and self.settled is not None and self._watch.add(report.exposed_s):
            self._look_at_window(self._watch)

    def iteration_skipped(self) -> None:
        """Take note of an iteration that made no update, on all ranks: nothing is learnt of it."""
        self._is_under_way = False

    def _wanted(self, times: IterationTimes | None) -> IterationTimes | None:
        return times if self._settings.overlap is not Overlap.NEVER else None

    def _go_on_measuring(self, profiler: Profiler) -> None:
        if not profiler.is_over:
            self._synchronizer.set_plan(profiler.current, afterwards=profiler.is_undisturbed)
            return
        self._profiler, self._measured = None, profiler
        timings = profiler.timings(self._communicator)
        self._besides = profiler.besides() if timings.forward is not None else None
        wire = self._measure(self._again)
        self._channels = [Channel(blocking, wire.beside(blocking), wire.alone(blocking)) for blocking in self._ways()]
        if self._settings.on_host:
            self._observations = profiler.observations(timings)
            channels = self._observations.refine(self._communicator, self._channels)
        else:
            channels = self._channels = [profiler.slowed(self._communicator, channel) for channel in self._channels]
        if self._settings.schedule == AUTO:
            self._begin_trials(timings, wire, channels)
            return
        plan = self._communicator.broadcast_object(self._plan(timings, channels[0]))
        self._decide(Decision(plan, timings, wire, channels))

    def _ways(self) -> Sequence[bool]:
        """Whether by blocking calls: both ways where they are compared."""
        return (False, True) if self._settings.schedule == AUTO else (False,)

    def _plan(self, timings: Timings, channel: Channel) -> Plan:
        ready = ready_times(timings.backward_times)
        plan = self._make(self._settings.schedule, ready, channel.beside, self._settings.bucket_bytes)
        plan = replace(plan, overlaps_forward=self._settings.overlap is Overlap.ALWAYS)
        return predict(plan, timings, channel)

    def _overlap(self, timings: Timings) -> Overlap:
        """Whether plans that overlap the forward pass are tried: without its times nobody could compare them."""
        return self._settings.overlap if timings.forward is not None else Overlap.NEVER

    def _begin_trials(self, timings: Timings, wire: AllReduceCosts, channels: Sequence[Channel]) -> None:
        candidates = None
        if self._communicator.rank == 0:
            candidates = find_candidates(
                self._segments,
                timings,
                channels,
                element_bytes=self._settings.element_bytes,
                bucket_bytes=self._settings.bucket_bytes,
                overlap=self._overlap(timings),
            )
        candidates = self._communicator.broadcast_object(candidates)
        assert candidates
        self._found = Decision(candidates[0].plan, timings, wire, channels)
        self._observations.begin_trials()
        self._ready = {}
        trials = Trials(candidates)
        if trials.is_over:
            self._decide_on(trials)
            return
        self._trials = trials
        self._synchronizer.set_plan(trials.current.plan)

    def _try(self, trials: Trials, laps: Sequence[float], report: CommReport, times: IterationTimes | None) -> None:
        """Note an iteration of a trial."""
        plan = trials.current.plan
        if plan.overlaps_forward and not self._is_under_way:
            self._is_under_way, self._before = True, times  # the next forward pass finds groups on their way
            return
        self._is_under_way = False
        # Updates made while communication goes on are the same work under every plan. A GPU's laps are of its own
        # clock, which the report knows nothing of.
        rest = report.exposed_s if self._settings.on_host else laps[-1]
        backward = sum(laps[:-1])
        if plan.overlaps_forward and self._settings.on_host:
            backward = report.backward_end  # of the iteration whose communication has ended, as all of the report
        else:
            if self._settings.on_host:
                self._observations.add(plan, backward, report)
            if len(plan.groups) == 1 and self._measured is not None:
                self._measured.record_trial(laps, report, self._wanted(times))
        self._ready.setdefault(plan.hash, []).append(sum(laps[:-2]))
        seconds = backward + rest
        total = self._total(plan, times)
        if total is not None and self._besides is not None:
            # What communication costs the forward pass counts as well; what was waited for counts in any case.
            seconds = max(total - self._besides, seconds)
        trials.record(seconds, rest)
        self._go_on_trying(trials)

    def _total(self, plan: Plan, times: IterationTimes | None) -> float | None:
        """What an iteration by a plan took, forward pass and all; None where that was not measured."""
        if times is None:
            return None
        if not plan.overlaps_forward:
            return times.total
        forward = self._found.timings.forward if self._found is not None else None
        if self._before is None or forward is None:
            return None
        return times.overlapped(self._before, forward.forward)

    def _go_on_trying(self, trials: Trials) -> None:
        if trials.stage_is_over:
            is_last = trials.is_last_stage
            trials.agree(agree_times(self._communicator, trials.local_times()))
            self._revise(trials, is_last)
            if trials.is_over:
                self._trials = None
                self._decide_on(trials)
                return
        self._synchronizer.set_plan(trials.current.plan)

    def _revise(self, trials: Trials, is_last: bool) -> None:
        """Predict, and unless the trials are over plan, with the costs that were seen in them."""
        assert self._found is not None and self._measured is not None
        timings, before = self._measured.timings(self._communicator), self._found.timings
        if before.forward is None or timings.forward is None:
            timings = replace(timings, forward=before.forward)  # without it no candidate overlaps the forward pass
        self._found = replace(self._found, timings=timings)
        self._observations.set_undisturbed(timings.total)
        channels = self._observations.refine(self._communicator, self._channels)
        revised: tuple[list[Candidate], list[Candidate]] | None = None
        if self._communicator.rank == 0:
            known = [candidate.on(channels, timings) for candidate in trials.candidates]
            more: list[Candidate] = []
            if not is_last:
                more = find_more(
                    known,
                    self._segments,
                    timings,
                    channels,
                    element_bytes=self._settings.element_bytes,
                    bucket_bytes=self._settings.bucket_bytes,
                    overlap=self._overlap(timings),
                )
            revised = known, more
        revised = self._communicator.broadcast_object(revised)
        assert revised is not None
        trials.revise(*revised)
        if trials.is_over:
            self._found = replace(self._found, channels=channels)

    def _decide_on(self, trials: Trials) -> None:
        results = self._communicator.broadcast_object(trials.results())
        assert self._found is not None
        best = results[0].candidate
        plan = replace(best.plan, schedule=f"{AUTO}: {best.label}")
        timings = self._found.timings
        channel = next(each for each in self._found.channels if each.blocking == plan.blocking)
        if results[0].seconds:
            timings = self._as_tried(results[0], timings, channel)
            plan = predict(plan, timings, channel)
        if self._settings.overlap is Overlap.ALWAYS and not plan.overlaps_forward:
            plan = predict(overlapping(plan), timings, channel)
        decision = replace(self._found, plan=plan, timings=timings, trials=results if len(results) > 1 else ())
        self._found = None
        is_known = bool(results[0].seconds) and self._settings.on_host
        self._decide(decision, results[0] if is_known else None)

    def _as_tried(self, trial: Trial, timings: Timings, channel: Channel) -> Timings:
        """Return timings by which a plan's gradients are ready when they were in its last trials; collective."""
        plan = trial.candidate.plan
        (seen,) = agree_times(
            self._communicator, [statistics.median(self._ready[plan.hash][-len(trial.seconds) :])]
        )  # fmt: skip
        alone = sum(timings.backward_times)
        added = max(group.ready_at for group in plan.groups) - alone
        # Communication, which adds the rest, ran beside all layers at most.
        undisturbed = max(seen - added, (1 - channel.slowdown) * seen)
        return timings.scaled(undisturbed / alone) if alone > 0 else timings

    def _decide(self, decision: Decision, known: Trial | None = None) -> None:
        """Have a plan used; `known` tells how long it is waited for, if its trial does."""
        self.settle(decision.plan)
        if self._watch is not None:
            exposed, uncertainty = (known.exposed, known.uncertainty) if known is not None else (None, 0.0)
            self._watch.expect(exposed, decision.timings.total, uncertainty)
        self._listener.plan_decided(decision)

    def _look_at_window(self, watch: DriftWatch) -> None:
        drift = watch.judge(agree_times(self._communicator, watch.window))
        if drift is not None:
            self._again = True
            self._listener.plan_outdated(*drift)
            self.search()

    def _guess(self, schedule: str, bucket_bytes: float, blocking: bool) -> Plan:
        """A plan that needs no measuring."""
        plan = self._make(schedule, [0.0] * len(self._segments), AffineCost(0.0, 0.0), bucket_bytes)
        return replace(plan, blocking=blocking)

    def _make(self, schedule: str, ready: Sequence[float], cost: Cost, bucket_bytes: float) -> Plan:
        return make_plan(
            schedule,
            self._segments,
            ready,
            cost,
            element_bytes=self._settings.element_bytes,
            bucket_bytes=bucket_bytes,
        )
