"""What searches and iterates in auto_steps.py: a slept backward pass on an emulated link, or a net that is trained."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, Protocol, cast

import distributed
import numpy
import replay

from mgcaffe.comm import AffineCost, Communicator, Plan, Trace
from mgcaffe.comm.tuning.decision import Decision
from mgcaffe.comm.tuning.settings import TunerSteps


class Side(Protocol):
    """What searches and iterates: on the emulated link, or on the shaped network."""

    ranks: Communicator

    def search(self, steps: TunerSteps) -> tuple[Decision, int]:
        """Return what `auto` chooses with these steps, and how many iterations that takes."""

    def iterate(self, plan: Plan) -> float:
        """Return this rank's seconds of an iteration by a plan."""

    def predicted(self, decision: Decision) -> float:
        """Return the seconds that `auto` predicts of an iteration by the plan that it chose."""


class ChangingLink:
    """The cost a + bM of an emulated link, which can become slower; calls as `AffineCost`."""

    def __init__(self, cost: AffineCost) -> None:
        self._cost = cost
        self.factor = 1.0

    def __call__(self, size: float) -> float:
        """Return the seconds of an all-reduce of `size` bytes."""
        return self.factor * self._cost(size)

    def __getattr__(self, name: str) -> Any:
        """Return what else an `AffineCost` has."""
        return getattr(self._cost, name)


class EmulatedSide(replay.Replay):
    """A slept backward pass on an emulated link."""

    def __init__(self, ranks: Communicator, trace: Trace, link: AffineCost, time_scale: float) -> None:
        self.link = ChangingLink(AffineCost(time_scale * link.a, time_scale * link.b))
        flat = numpy.zeros(trace.elements, dtype=numpy.float32)
        super().__init__(ranks, trace.scaled(time_scale), cast(AffineCost, self.link), flat, time_scale)
        self.ranks = ranks

    def search(self, steps: TunerSteps) -> tuple[Decision, int]:
        """Let `auto` search with these steps."""
        return self.find_auto(steps)

    def iterate(self, plan: Plan) -> float:
        """Sleep through an iteration by a plan."""
        return self.seconds(plan)[0]

    def predicted(self, decision: Decision) -> float:
        """Return the prediction for the backward pass and the waiting after it."""
        return decision.plan.backward_end + decision.plan.exposed


class TrainedSide:
    """A real net, trained by the solver."""

    def __init__(self, model: str) -> None:
        from distributed_worker import OurSide

        self._ours = OurSide(model, *distributed.SIZES[model])
        self._besides: float | None = None
        self.ranks = self._ours.ranks
        self._tuner = self._ours.solver._averaging._tuner
        self._tuner._measure = functools.cache(self._tuner._measure)  # the same costs for every search

    def search(self, steps: TunerSteps) -> tuple[Decision, int]:
        """Let `auto` search with these steps while the net is trained."""
        self._tuner.settings = replace(self._tuner.settings, steps=steps)
        self._tuner.search()
        iterations = self._ours.finish_search()
        forward = self._ours.decision.timings.forward
        if self._besides is None and forward is not None:
            self._besides = forward.total
        return self._ours.decision, iterations

    def iterate(self, plan: Plan) -> float:
        """Train for an iteration by a plan."""
        return self._ours.iteration(plan)[0]

    def predicted(self, decision: Decision) -> float:
        """Return the prediction for a whole iteration; what it does besides communication is that of the first search.

        Searches that don't overlap the forward pass don't measure it.
        """
        assert self._besides is not None
        return self._besides + decision.plan.backward_end + decision.plan.exposed
