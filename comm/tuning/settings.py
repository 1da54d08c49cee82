"""How the tuner looks for a plan: the settings of a run, and the switches of its steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from mgcaffe.comm.planning.forward_overlap import Overlap
from mgcaffe.comm.planning.schedules import DEFAULT_BUCKET_BYTES, Schedule

AUTO = Schedule.AUTO.value
"""The schedule that tries plans."""


@dataclass(frozen=True)
class TunerSteps:
    """The steps of the search, each of which a benchmark can switch off (`benchmarks/auto_steps.py`).

    Training has all of them on; there is no option for users.

    Attributes:
        warm_up: the first quarter of the calibration's iterations is not counted.
        contention: how much communication slows the backward pass beside it is measured and predicted.
        cost_correction: the measured cost curves are moved to what all-reduces took in training.
        blocking_calls: plans are tried with MPI's blocking calls, too; off: polled calls only.
        forward_overlap: plans whose last groups travel beside the next forward pass are tried.
        trials: plans are tried in real iterations; off: the one that is predicted to be the fastest is taken.
        prediction_from_trials: after each stage of the trials, plans are predicted again with what was seen in it.
        further_candidates: plans that only become promising by these predictions are added after the first stage.
        second_stage: the best plans run a second stage of trials.
        drift_watch: the waiting for communication is watched afterwards, and a new search started if it grows.
    """

    warm_up: bool = True
    contention: bool = True
    cost_correction: bool = True
    blocking_calls: bool = True
    forward_overlap: bool = True
    trials: bool = True
    prediction_from_trials: bool = True
    further_candidates: bool = True
    second_stage: bool = True
    drift_watch: bool = True


@dataclass(frozen=True)
class TunerSettings:
    """How a plan is looked for.

    Attributes:
        schedule: a name in `schedules.SCHEDULES`, or `auto`.
        element_bytes: the size of a gradient.
        calibration_iterations: how many iterations are measured before planning.
        bucket_bytes: the bucket of the schedule `threshold`.
        on_host: whether gradients lie in the host's memory.
        overlap: whether the last groups may travel beside the next forward pass; `TRY` is for `auto`, on the host.
        steps: which steps of the search are taken.
    """

    schedule: str
    element_bytes: int
    calibration_iterations: int
    bucket_bytes: float = DEFAULT_BUCKET_BYTES
    on_host: bool = True
    overlap: Overlap = Overlap.NEVER
    steps: TunerSteps = field(default_factory=TunerSteps)

    @property
    def is_auto(self) -> bool:
        """Whether plans are tried."""
        return self.schedule == AUTO

    @property
    def tried_overlap(self) -> Overlap:
        """Whether the last groups may travel beside the next forward pass, by the steps that are taken."""
        return Overlap.NEVER if self.overlap is Overlap.TRY and not self.steps.forward_overlap else self.overlap

    @property
    def ways_of_waiting(self) -> tuple[bool, ...]:
        """Whether by blocking calls: both ways where they are compared."""
        return (False, True) if self.is_auto and self.steps.blocking_calls else (False,)
