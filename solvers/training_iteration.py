"""What is known of one iteration, phase by phase (`Solver._iterate`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mgcaffe.comm import CommReport


@dataclass
class TrainingIteration:
    """One iteration from its first forward pass to its end.

    Attributes:
        number: updates done before it.
        began: when it began, by time.perf_counter.
        own_loss: this rank's mean over the micro-batches.
        data_wait_s: time that this rank spent waiting for data.
        data_work_s: what making this rank's batches took in its threads meanwhile, by stage.
        loss: mean over the ranks.
        probe: mean over the ranks of a number that is not finite if gradients are not (`FiniteCheck.probe`).
        stop, snapshot: whether a rank asks to end after this iteration, or for a snapshot.
        is_skipped: whether its gradients are given up, so that there is no update.
        smoothed_loss: mean over the last `average_loss` iterations.
        rate: the learning rate.
        comm: the communication that ended in this iteration.
        is_updated: whether the update is made, or left to the next forward pass.
    """

    number: int
    began: float
    own_loss: float
    data_wait_s: float
    data_work_s: Mapping[str, float] = field(default_factory=dict)
    loss: float = 0.0
    probe: float = 0.0
    stop: bool = False
    snapshot: bool = False
    is_skipped: bool = False
    smoothed_loss: float = 0.0
    rate: float = 0.0
    comm: CommReport = field(default_factory=CommReport)
    is_updated: bool = False
