"""Learning-rate schedules: pure functions of the iteration, made by small factories and composed.

The formulas are those of Caffe (sgd_solver.cpp, GetLearningRate) and its forks. An iteration is counted by the updates
that the weights have seen before it. A schedule depends on nothing else, so a solver that is stopped, resumed or asked
twice always gets the same rate:

    schedule = clip(join(linear(0.01, 0.1, 5), step(0.1, gamma=0.5, stepsize=10), at=5), minimum=0.04)
    [schedule(i) for i in (0, 4, 5, 9, 10, 30)]     # 0.04, 0.082, 0.1, 0.1, 0.05, 0.04
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

RateSchedule = Callable[[int], float]
"""Gives the value of an iteration."""


def fixed(base_lr: float) -> RateSchedule:
    """Make the schedule rate(i) = base_lr."""
    return lambda iteration: base_lr


def step(base_lr: float, gamma: float, stepsize: int) -> RateSchedule:
    """Make the schedule rate(i) = base_lr * gamma ^ floor(i / stepsize)."""
    return lambda iteration: base_lr * _power(gamma, iteration // stepsize)


def exp(base_lr: float, gamma: float) -> RateSchedule:
    """Make the schedule rate(i) = base_lr * gamma ^ i."""
    return lambda iteration: base_lr * _power(gamma, iteration)


def inv(base_lr: float, gamma: float, power: float) -> RateSchedule:
    """Make the schedule rate(i) = base_lr * (1 + gamma * i) ^ -power."""
    return lambda iteration: base_lr * _power(1 + gamma * iteration, -power)


def multistep(base_lr: float, gamma: float, stepvalues: Sequence[int]) -> RateSchedule:
    """Make the schedule rate(i) = base_lr * gamma ^ (steps taken until i, see `steps_passed`)."""
    return lambda iteration: base_lr * _power(gamma, steps_passed(stepvalues, iteration))


def poly(base_lr: float, min_lr: float, power: float, max_iter: int) -> RateSchedule:
    """Make the schedule rate(i) = (base_lr - min_lr) * (1 - i / max_iter) ^ power + min_lr.

    From max_iter on 1 - i / max_iter counts as 0. min_lr, 0 in Caffe, is NVIDIA's.
    """

    def schedule(iteration: int) -> float:
        remaining = _power(max(0.0, 1 - iteration / max_iter) if max_iter else 0.0, power)
        return (base_lr - min_lr) * remaining + min_lr

    return schedule


def sigmoid(base_lr: float, gamma: float, stepsize: int) -> RateSchedule:
    """Make the schedule rate(i) = base_lr / (1 + e ^ (-gamma * (i - stepsize))): it falls where gamma is negative."""
    return lambda iteration: base_lr / (1 + _power(math.e, -gamma * (iteration - stepsize)))


def multifixed(rates: Sequence[float], last_iterations: Sequence[int]) -> RateSchedule:
    """Make the schedule rate(i) = rates[k] for the first k with i <= last_iterations[k], or else rates[-1].

    Intel's fork: stagelr and stageiter.
    """

    def schedule(iteration: int) -> float:
        stages = zip(last_iterations, rates, strict=True)
        return next((rate for last, rate in stages if iteration <= last), rates[-1])

    return schedule


def linear(start: float, end: float, iterations: int) -> RateSchedule:
    """Make the schedule value(i) = start + (end - start) * i / iterations, and `end` from `iterations` on."""
    return ramp(start, end, iterations, lambda done: done)


def quadratic(start: float, end: float, iterations: int) -> RateSchedule:
    """Make the schedule value(i) = start + (end - start) * (i / iterations) ^ 2, and `end` from `iterations` on."""
    return ramp(start, end, iterations, lambda done: done * done)


def ramp(start: float, end: float, iterations: int, shape: Callable[[float], float]) -> RateSchedule:
    """Make the schedule value(i) = start + (end - start) * shape(min(1, i / iterations))."""
    return lambda iteration: start + (end - start) * shape(min(1.0, iteration / iterations))


def join(first: RateSchedule, then: RateSchedule, at: int) -> RateSchedule:
    """Make the schedule first(i) for i < at, then(i) from there on; both count their iterations from 0."""
    return lambda iteration: first(iteration) if iteration < at else then(iteration)


def clip(schedule: RateSchedule, minimum: float) -> RateSchedule:
    """Make the schedule max(schedule(i), minimum)."""
    return lambda iteration: max(schedule(iteration), minimum)


def steps_passed(stepvalues: Sequence[int], iteration: int) -> int:
    """Count the steps that a run from 0 on has taken at `iteration`.

    As in Caffe one that is due waits for those before it, and an iteration takes one at most. A run that goes on from a
    snapshot has taken as many; Caffe's lags behind where stepvalues were changed.
    """
    steps, taken_at = 0, -1
    for value in stepvalues:
        taken_at = max(value, taken_at + 1)
        if taken_at > iteration:
            break
        steps += 1
    return steps


def _power(base: float, exponent: float) -> float:
    """Return `base ^ exponent` as IEEE arithmetic has it: infinity, not an exception, where it grows too large."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf
    except ValueError:  # 0 to a negative power
        return math.inf
