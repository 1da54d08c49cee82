"""Find the plan while training goes on: measure, plan, try (`auto`), and notice when the plan no longer holds.

    tuner = Tuner(communicator, synchronizer, segments, settings, measure, listener)
    tuner.search()
    every iteration: the backward pass with its communication, then
        tuner.iteration_done(laps, report)          # may give the synchronizer another plan

A search has three phases, each an object with what belongs to it: `Measuring` (measuring.py), with `auto` `Trying`
(trying.py), then `Settled` (drift.py). Nothing is computed twice: gradients travel by whatever plan is being examined,
and the means are the same. All ranks make the same calls; rank 0's conclusions hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mgcaffe.comm.exchange.comm_report import CommReport
from mgcaffe.comm.exchange.synchronizer import Synchronizer
from mgcaffe.comm.planning.cost import AllReduceCosts
from mgcaffe.comm.planning.forward_overlap import Overlap
from mgcaffe.comm.planning.plan import Plan, Segment
from mgcaffe.comm.planning.timings import IterationTimes
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.tuning.decision import Decision, TunerListener
from mgcaffe.comm.tuning.drift import Drift, DriftWatch, Settled
from mgcaffe.comm.tuning.measuring import Measurements, Measuring, decide_without_trials
from mgcaffe.comm.tuning.profiler import MeasuredIteration
from mgcaffe.comm.tuning.search_context import SearchContext
from mgcaffe.comm.tuning.settings import TunerSettings
from mgcaffe.comm.tuning.trying import Trying


class Tuner:
    """The plan of one synchronizer.

    Args:
        communicator: the ranks; used between iterations.
        synchronizer: exchanges the gradients by the plan that it is given; it has been started.
        segments: the layers with gradients.
        settings: how to look for a plan.
        measure: returns the costs of an all-reduce, the same on every rank; with True it must measure them again.
        listener: receives what is decided.

    Attributes:
        chosen_plan: the plan that was found, or adopted; None until then. While another one is looked for it is still
            the one to be stored.
        settings: how to look for a plan; may be replaced between two searches.
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
        self.settings = settings
        self.chosen_plan: Plan | None = None
        self._communicator = communicator
        self._synchronizer = synchronizer
        self._segments = list(segments)
        self._measure = measure
        self._measures_again = False
        self._listener = listener
        self._drift_watch = DriftWatch()
        self._phase: Measuring | Trying | Settled | None = None

    @property
    def is_searching(self) -> bool:
        """Whether plans are being measured or tried, which takes laps (`iteration_done`)."""
        return isinstance(self._phase, Measuring | Trying)

    def search(self) -> None:
        """Begin to look for a plan; a collective call, between iterations."""
        self._phase = Measuring(self._context(), lambda: self._measure(self._measures_again))
        self._phase.begin()

    def adopt(self, plan: Plan) -> None:
        """Use a plan that was found earlier; a collective call, between iterations."""
        self._settle(plan, None, plan.backward_end)

    def iteration_done(self, laps: Sequence[float], report: CommReport, times: IterationTimes | None = None) -> None:
        """Record an iteration and choose the plan of the next one; collective, between iterations.

        Args:
            laps: as for `MeasuredIteration`; not read unless `is_searching`.
            report: the communication that ended in the iteration.
            times: what else was measured of it; without them no plan is tried that overlaps the forward pass.
        """
        if self._phase is None:
            return
        wants_times = self.settings.tried_overlap is not Overlap.NEVER
        outcome = self._phase.record(MeasuredIteration(laps, report, times if wants_times else None))
        if isinstance(outcome, Measurements):
            self._plan_with(outcome)
        elif isinstance(outcome, Decision):
            self._decide(outcome)
        elif isinstance(outcome, Drift):
            self._search_again(outcome)

    def iteration_skipped(self) -> None:
        """Take note of an iteration that made no update, on all ranks: nothing is learnt from it."""
        if isinstance(self._phase, Trying):
            self._phase.skip_iteration()

    def _context(self) -> SearchContext:
        return SearchContext(self._communicator, self._synchronizer, self._segments, self.settings)

    def _plan_with(self, found: Measurements) -> None:
        """Go on from the measuring: to the trials, or to the plan itself where nothing is to be tried."""
        context = self._context()
        if not self.settings.is_auto:
            self._decide(decide_without_trials(context, found))
            return
        trying = Trying(context, found)
        if trying.is_over:
            self._decide(trying.decide())
            return
        self._phase = trying
        trying.begin()

    def _decide(self, decision: Decision) -> None:
        """Use the plan that was found, and watch whether it is waited for as long as in its trials."""
        exposed, uncertainty = None, 0.0
        if decision.trials and self.settings.on_host:
            exposed, uncertainty = decision.trials[0].exposed, decision.trials[0].uncertainty
        self._settle(decision.plan, exposed, decision.timings.total, uncertainty)
        self._listener.plan_decided(decision)

    def _settle(self, plan: Plan, exposed: float | None, backward: float, uncertainty: float = 0.0) -> None:
        """Use a plan from now on; the other arguments as for `DriftWatch.expect`."""
        self._synchronizer.set_plan(plan)
        self.chosen_plan = plan
        is_watched = self.settings.is_auto and self.settings.steps.drift_watch
        self._drift_watch.expect(exposed, backward, uncertainty)
        self._phase = Settled(self._communicator, self._drift_watch if is_watched else None)

    def _search_again(self, drift: Drift) -> None:
        self._measures_again = True
        self._listener.plan_outdated(*drift)
        self.search()
