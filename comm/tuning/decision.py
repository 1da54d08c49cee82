"""What a search for a plan comes to, and the interface of those that want to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from mgcaffe.comm.planning.cost import AllReduceCosts
from mgcaffe.comm.planning.plan import Plan
from mgcaffe.comm.planning.prediction import Channel
from mgcaffe.comm.planning.timings import Timings
from mgcaffe.comm.tuning.trials import Trial


@dataclass(frozen=True)
class Decision:
    """The plan that was found, and what it rests on.

    Attributes:
        plan: with its predicted times.
        timings: of the passes; with `auto`, as the chosen plan's trials found them.
        costs: of an all-reduce, measured while nothing else ran.
        channels: the ways of waiting, with the contention that was measured; with `auto`, as the trials found them.
        trials: with `auto`, the chosen plan's first; otherwise empty.
    """

    plan: Plan
    timings: Timings
    costs: AllReduceCosts
    channels: Sequence[Channel]
    trials: Sequence[Trial] = ()

    @property
    def predicted_from(self) -> str:
        """What the plan's times were predicted from: `calibration`, or `trials`, which ran after it."""
        return "trials" if self.trials else "calibration"


class TunerListener(Protocol):
    """Receives what a tuner decides."""

    def plan_decided(self, decision: Decision) -> None:
        """Take the plan that holds from the next iteration on; called on every rank."""

    def plan_outdated(self, exposed: float, expected: float) -> None:
        """Take the seconds that are waited for communication, above those expected; a new search has begun."""
