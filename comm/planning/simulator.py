"""What an iteration would take on any number of workers, from one worker's trace and the cost of an all-reduce.

The model is the paper's (arXiv 1912.09268): every worker computes as the trace says, the next iteration begins
when the backward pass and the last all-reduce have ended, and the update takes no time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mgcaffe.comm.planning.networks import Network
from mgcaffe.comm.planning.plan import Plan
from mgcaffe.comm.planning.schedules import DEFAULT_BUCKET_BYTES, make_plan
from mgcaffe.comm.planning.trace import Trace

DEFAULT_FORWARD_RATIO = 0.5
"""Forward over backward where the trace doesn't say: a backward pass has about twice the arithmetic."""


@dataclass(frozen=True)
class Result:
    """One schedule on so many workers.

    Attributes:
        workers: how many, each with the trace's batch.
        schedule: its name.
        iteration_s: seconds from forward pass to forward pass.
        speedup: images per second over those of one worker.
        exposed_s: the seconds of it in which there is only communication.
        groups: how many all-reduces.
    """

    workers: int
    schedule: str
    iteration_s: float
    speedup: float
    exposed_s: float
    groups: int


def simulate(
    trace: Trace,
    network: Network,
    workers: Iterable[int],
    schedules: Sequence[str],
    *,
    forward_ratio: float | None = None,
    bucket_bytes: float = DEFAULT_BUCKET_BYTES,
    element_bytes: int = 4,
) -> list[Result]:
    """Return the results by number of workers, then by schedule, in the order given.

    Args:
        trace: one worker's iteration.
        network: the cost of an all-reduce by the number of workers.
        workers: how many, each at least 1.
        schedules: names in `schedules.SCHEDULES`.
        forward_ratio: see `forward_seconds`.
        bucket_bytes: the bucket of the schedule `threshold`.
        element_bytes: the size of a gradient.

    Raises:
        CommError: an unknown schedule, or more workers than the network knows of.
    """
    forward = forward_seconds(trace, forward_ratio)
    segments, ready = trace.segments()
    results = []
    for count in workers:
        cost = network.cost(count)
        for schedule in schedules:
            plan = make_plan(
                schedule,
                segments,
                ready,
                cost,
                element_bytes=element_bytes,
                bucket_bytes=bucket_bytes,
                backward_end=trace.backward_s,
            )
            results.append(predict(plan, count, forward))
    return results


def forward_seconds(trace: Trace, ratio: float | None = None) -> float:
    """Return how long the forward pass takes: so many times the backward pass; by default as the trace says."""
    if ratio is None and trace.forward_s is not None:
        return trace.forward_s
    return (DEFAULT_FORWARD_RATIO if ratio is None else ratio) * trace.backward_s


def predict(plan: Plan, workers: int, forward_s: float) -> Result:
    """Return what a plan comes to, with a forward pass of `forward_s` seconds."""
    alone = forward_s + plan.backward_end
    iteration = alone + plan.exposed
    return Result(workers, plan.schedule, iteration, workers * alone / iteration, plan.exposed, len(plan.groups))
