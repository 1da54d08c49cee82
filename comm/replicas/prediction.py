"""Formulas for what replicas kept together come to: examples per second, gap and bytes.

With n trainers of m workers, t the time of a worker's iteration, B its batch, T the time of a round (`workload.py`):

- alone: n m B / t.
- In the foreground, every k iterations of a trainer, its workers wait for the round. Where all average, a round begins
  when the slowest trainer has come: n k B / (S + T), with S the expected maximum of n sums of k times t / m. That is
  n m B / (t + m T / k) where all iterations take the same time.
- In the background nobody waits: n m B / t, less what the shadow thread takes of the workers' cores.
- p servers with links of W bytes per second move 2 M / p bytes each for a round of a trainer, so there are at most
  p W / (2 M) rounds per second of all trainers, and a round takes n 2 M / (p W) where they do nothing else.

For the foreground with servers or in groups where trainers differ there is no formula: `event_simulation.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy

from mgcaffe.comm.replicas.workload import BACKGROUND, CollectiveRounds, Exchange, ServedRounds, Training
from mgcaffe.errors import CommError

_GRID = 20001


@dataclass(frozen=True)
class Prediction:
    """What so many trainers come to.

    Attributes:
        sync: one of `workload.SYNCS`.
        every: iterations from one round of a trainer to the next, in the foreground; None in the background.
        trainers: how many.
        examples_per_s: of all trainers.
        gap: iterations of all trainers over their rounds; None where there are none.
        round_s: seconds of a round, waiting for servers included, waiting for slower trainers not.
        bytes_per_s: what each trainer hands over for synchronization per second, one way.
        server_bytes_per_s: what each server's link carries, both ways.
        is_simulated: whether event by event, instead of by a formula.
    """

    sync: str
    every: int | None
    trainers: int
    examples_per_s: float
    gap: float | None
    round_s: float
    bytes_per_s: float
    server_bytes_per_s: float = 0.0
    is_simulated: bool = False


def has_formula(sync: str, trainers: int, training: Training, exchange: Exchange) -> bool:
    """Return whether `predict` can answer."""
    if sync in BACKGROUND or not training.varies:
        return True
    rounds = exchange.rounds(sync, trainers)
    return rounds is None or (isinstance(rounds, CollectiveRounds) and len(rounds.sizes) == 1)


def predict(
    sync: str,
    trainers: int,
    training: Training,
    exchange: Exchange,
    *,
    every: int | None = None,
    interval_s: float = 0.0,
) -> Prediction:
    """Return what so many trainers come to.

    Args:
        sync: one of `workload.SYNCS`.
        trainers: n, at least 1.
        training: how a trainer trains by itself.
        exchange: what brings replicas together.
        every: k, in the foreground.
        interval_s: the least time from the start of one background round to the next.

    Raises:
        CommError: a background round that takes no time, groups that do not fit, a network that says nothing.
    """
    assert has_formula(sync, trainers, training, exchange)
    rounds = exchange.rounds(sync, trainers)
    if rounds is None:
        return alone(sync, trainers, training, every)
    if sync in BACKGROUND:
        return in_background(sync, trainers, training, exchange, max(rounds.mean_s(trainers), interval_s))
    assert every is not None
    if isinstance(rounds, ServedRounds):
        cycle = max(every * training.step_s + rounds.exchange_s, trainers * rounds.service_s)
        taken = cycle - every * training.step_s
    else:
        taken = rounds.mean_s(trainers)
        cycle = slowest(trainers, every, training) + taken
    return in_foreground(sync, trainers, training, exchange, every, rounds_per_s=trainers / cycle, round_s=taken)


def alone(sync: str, trainers: int, training: Training, every: int | None = None) -> Prediction:
    """Return the prediction for trainers that synchronize with nobody."""
    speed = training.batch * training.iterations_per_s(trainers)
    return Prediction(sync, every, trainers, speed, None, 0.0, 0.0)


def in_background(sync: str, trainers: int, training: Training, exchange: Exchange, round_s: float) -> Prediction:
    """Return the prediction for rounds of so many seconds each, beside training.

    The shadow thread has no core of its own: it takes that of a worker while it computes, though never more than its
    equal share of the trainer's cores.

    Raises:
        CommError: rounds that take no time.
    """
    if not round_s > 0:
        raise CommError(
            "a background round takes no time, so any number of them fits into any time",
            hint="say what a round takes, or the least interval between two of them",
        )
    share = min(exchange.processor_s / round_s / training.threads, 1 / (training.threads + 1))
    iterations_per_s = training.iterations_per_s(trainers) * (1 - share)
    return _prediction(sync, None, trainers, training, exchange, (iterations_per_s, trainers / round_s, round_s))


def in_foreground(
    sync: str, trainers: int, training: Training, exchange: Exchange, every: int, *, rounds_per_s: float, round_s: float
) -> Prediction:
    """Return the prediction for rounds of so many seconds each; rounds_per_s is added up over the trainers."""
    return _prediction(sync, every, trainers, training, exchange, (every * rounds_per_s, rounds_per_s, round_s))


def _prediction(
    sync: str,
    every: int | None,
    trainers: int,
    training: Training,
    exchange: Exchange,
    figures: tuple[float, float, float],
) -> Prediction:
    iterations_per_s, rounds_per_s, round_s = figures
    rounds = exchange.rounds(sync, trainers)
    return Prediction(
        sync=sync,
        every=every,
        trainers=trainers,
        examples_per_s=training.batch * iterations_per_s,
        gap=iterations_per_s / rounds_per_s,
        round_s=round_s,
        bytes_per_s=exchange.parameter_bytes * rounds_per_s / trainers,
        server_bytes_per_s=rounds.server_bytes * rounds_per_s if isinstance(rounds, ServedRounds) else 0.0,
    )


def slowest(trainers: int, every: int, training: Training) -> float:
    """Return the expected seconds until the last of the trainers has done its `every` iterations, all having begun."""
    late = every * (training.straggler_step_s - training.step_s)
    mean = every * training.step_s
    if training.spread == 0:
        return mean + late
    # A sum of k independent times is gamma distributed as well, with k times the shape.
    times, below = _gamma_distribution(mean, every / training.spread**2)
    # All of the others' times and all of the straggler's, which are `late` more; the maximum is never below the first.
    at = numpy.union1d(times, times + late)
    others = numpy.interp(at, times, below)
    straggler = numpy.interp(at - late, times, below)
    above = 1 - others ** (trainers - 1) * straggler
    return float(at[0] + ((above[1:] + above[:-1]) / 2 * numpy.diff(at)).sum())


def _gamma_distribution(mean: float, shape: float) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Return times, and the probability that a gamma distributed one is below each."""
    deviation = mean / math.sqrt(shape)
    least = max(mean * 1e-9, mean - 12 * deviation)
    times = numpy.linspace(least, mean + (10 + 25 / math.sqrt(shape)) * deviation, _GRID)
    scale = mean / shape
    logarithms = (shape - 1) * numpy.log(times / scale) - times / scale - math.lgamma(shape)
    density = numpy.exp(logarithms) / scale
    below = numpy.concatenate([[0.0], numpy.cumsum((density[1:] + density[:-1]) / 2 * numpy.diff(times))])
    return times, below / below[-1]
