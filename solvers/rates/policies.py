"""The learning-rate policies: pure functions of the iteration (Caffe: sgd_solver.cpp, GetLearningRate).

`iteration` is the number of updates that the weights have seen. A rate depends on nothing else, so a solver
that is stopped, resumed or asked twice always gives the same one; but for `plateau`, which is a pure function of the
steps that it has made (`plateau`). A warm-up (`warm_up`) comes before any policy, and `min_lr` bounds all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise, takewhile

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, Source, has_field, nearest
from mgcaffe.solvers.rates.plateau import Plateau, PlateauState
from mgcaffe.solvers.rates.warm_up import WarmUp
from mgcaffe.solvers.source import locate

Formula = Callable[[SolverParameter, int], float]
Check = Callable[[SolverParameter, Source | None], None]


def fixed(param: SolverParameter, iteration: int) -> float:
    """Rate = base_lr."""
    return param.base_lr


def step(param: SolverParameter, iteration: int) -> float:
    """Rate = base_lr * gamma ^ floor(iteration / stepsize)."""
    return param.base_lr * _power(param.gamma, iteration // param.stepsize)


def exp(param: SolverParameter, iteration: int) -> float:
    """Rate = base_lr * gamma ^ iteration."""
    return param.base_lr * _power(param.gamma, iteration)


def inv(param: SolverParameter, iteration: int) -> float:
    """Rate = base_lr * (1 + gamma * iteration) ^ -power."""
    return param.base_lr * _power(1 + param.gamma * iteration, -param.power)


def multistep(param: SolverParameter, iteration: int) -> float:
    """Rate = base_lr * gamma ^ (number of leading stepvalues that are <= iteration).

    Caffe goes up by at most one step a call, which lags behind after a resume; this counts from the
    iteration.
    """
    return param.base_lr * _power(param.gamma, _steps_passed(param, iteration))


def poly(param: SolverParameter, iteration: int) -> float:
    """Rate = (base_lr - min_lr) * (1 - iteration / max_iter) ^ power + min_lr, with 0 ^ power from max_iter on.

    min_lr, 0 in Caffe, is NVIDIA's.
    """
    left = _power(max(0.0, 1 - iteration / param.max_iter), param.power)
    return (param.base_lr - param.min_lr) * left + param.min_lr


def sigmoid(param: SolverParameter, iteration: int) -> float:
    """Rate = base_lr / (1 + e ^ (-gamma * (iteration - stepsize))): falls where gamma is negative."""
    return param.base_lr / (1 + _power(math.e, -param.gamma * (iteration - param.stepsize)))


def multifixed(param: SolverParameter, iteration: int) -> float:
    """Rate = stagelr[k] for the first stage k with iteration <= stageiter[k], or else the last one (Intel's fork)."""
    stages = zip(param.stageiter, param.stagelr, strict=True)
    return next((rate for last, rate in stages if iteration <= last), param.stagelr[-1])


def plateau(param: SolverParameter, steps: int) -> float:
    """Rate = base_lr * gamma ^ steps, with a step down where the smoothed loss has stopped falling (SSD's fork)."""
    return param.base_lr * _power(param.gamma, steps)


def _check_min_lr(param: SolverParameter, source: Source | None) -> None:
    if param.min_lr > param.base_lr:
        raise SolverError(
            f"min_lr is {param.min_lr:g}, above base_lr {param.base_lr:g}; with lr_policy 'poly' the rate goes from"
            " base_lr to min_lr",
            location=locate(source, "min_lr"),
        )


def _check_windows(param: SolverParameter, source: Source | None) -> None:
    if not param.plateau_winsize:
        raise SolverError(
            "lr_policy 'plateau' needs plateau_winsize: for each step of the rate, the iterations to wait for a lower"
            " loss",
            location=locate(source, "lr_policy"),
        )
    for index, size in enumerate(param.plateau_winsize):
        if size <= 0:
            raise SolverError(
                f"plateau_winsize is {size} and must be above 0", location=locate(source, "plateau_winsize", index)
            )


def _check_stages(param: SolverParameter, source: Source | None) -> None:
    if not param.stagelr or len(param.stagelr) != len(param.stageiter):
        raise SolverError(
            f"lr_policy 'multifixed' needs one stageiter for each stagelr; the solver has {len(param.stagelr)} stagelr"
            f" and {len(param.stageiter)} stageiter",
            location=locate(source, "stagelr" if param.stagelr else "lr_policy"),
        )
    for index, rate in enumerate(param.stagelr):
        if rate < 0:
            raise SolverError(
                f"stagelr is {rate:g} and must not be negative", location=locate(source, "stagelr", index)
            )
    for index, (before, last) in enumerate(pairwise(param.stageiter), start=1):
        if last <= before:
            raise SolverError(
                f"stageiter {last} comes after {before}: the stages' last iterations must rise",
                location=locate(source, "stageiter", index),
            )


@dataclass(frozen=True)
class _Policy:
    """A formula and what it asks of the solver's fields."""

    formula: Formula
    reads: tuple[str, ...] = ()
    above_zero: tuple[str, ...] = ()
    not_negative: tuple[str, ...] = ()
    reads_base_lr: bool = True
    needs: tuple[str, ...] = ()
    check: Check | None = None

    @property
    def fields(self) -> set[str]:
        """All fields that belong to the policy."""
        return {*self.reads, *self.above_zero, *self.not_negative, *self.needs}


POLICIES: dict[str, _Policy] = {
    "fixed": _Policy(fixed),
    "step": _Policy(step, ("gamma",), ("stepsize",), ("gamma",)),
    "exp": _Policy(exp, ("gamma",), (), ("gamma",)),
    "inv": _Policy(inv, ("gamma", "power"), (), ("gamma",)),
    "multistep": _Policy(multistep, ("gamma", "stepvalue"), (), ("gamma",)),
    "poly": _Policy(poly, ("power",), ("max_iter",), check=_check_min_lr),
    "sigmoid": _Policy(sigmoid, ("gamma",), ("stepsize",)),
    "multifixed": _Policy(multifixed, needs=("stagelr", "stageiter"), reads_base_lr=False, check=_check_stages),
    "plateau": _Policy(plateau, ("gamma",), (), ("gamma",), needs=("plateau_winsize",), check=_check_windows),
}


class LearningRatePolicy:
    """The policy that a solver asks for, its fields checked.

    Args:
        param: the SolverParameter message.
        source: where its fields stand in the user's file, if that is known.

    Raises:
        SolverError: the policy is missing or unknown, or a field lies outside its range.
    """

    def __init__(self, param: SolverParameter, source: Source | None = None) -> None:
        self.name: str = param.lr_policy
        self._param = param
        if self.name not in POLICIES:
            _refuse_unknown(param, source)
        self._policy = POLICIES[self.name]
        for field in self._policy.above_zero:
            if getattr(param, field) <= 0:
                self._refuse(field, "must be above 0", source)
        for field in self._policy.not_negative:
            if getattr(param, field) < 0:
                self._refuse(field, "must not be negative", source)
        if param.min_lr < 0:
            raise SolverError(f"min_lr is {param.min_lr:g} and must not be negative", location=locate(source, "min_lr"))
        if self._policy.check is not None:
            self._policy.check(param, source)
        self._warm_up = WarmUp(param, source)
        self._plateau = Plateau(param) if self.name == "plateau" else None

    def rate(self, iteration: int) -> float:
        """The learning rate of the update that `iteration` updates precede; of `plateau`, as the losses so far say."""
        rate = self._warm_up.rate(iteration)
        if rate is None:
            counted = iteration if self._plateau is None else self._plateau.state.steps
            rate = self._policy.formula(self._param, counted)
        return max(rate, self._param.min_lr) if self._param.min_lr > 0 else rate

    def current_step(self, iteration: int) -> int:
        """How many steps the rate has gone down: Caffe's `current_step` in a solverstate."""
        if self.name == "step":
            return iteration // self._param.stepsize
        if self._plateau is not None:
            return self._plateau.state.steps
        return _steps_passed(self._param, iteration) if self.name == "multistep" else 0

    def observe(self, iteration: int, smoothed_loss: float) -> str | None:
        """Shows the policy an iteration's loss, the same on all ranks, before the rate of its update is asked for.

        Returns:
            What to tell the user: that the rate goes down for this loss.
        """
        if self._plateau is None or iteration < self._warm_up.iterations:
            return None
        if not self._plateau.observe(iteration, smoothed_loss):
            return None
        return f"Plateau Status: Iteration {iteration}, step = {self._plateau.state.steps}"

    @property
    def state(self) -> PlateauState | None:
        """What a snapshot has to hold beside the iteration; None: nothing."""
        return self._plateau.state if self._plateau is not None else None

    def resume(self, state: PlateauState | None, iteration: int, current_step: int) -> str | None:
        """Goes on from a snapshot.

        Args:
            state: what `state` was; None in a snapshot of another policy, or of a Caffe without `plateau`.
            iteration, current_step: the snapshot's.

        Returns:
            What to tell the user of a state that is missing.
        """
        if self._plateau is None:
            return None
        if state is not None:
            self._plateau.state = state
            return None
        self._plateau.state = PlateauState(current_step, last_event=iteration)
        return (
            "the snapshot doesn't say what lr_policy 'plateau' has seen: it goes on from step"
            f" {current_step}, and looks for a plateau from iteration {iteration} on"
        )

    def unset_fields(self) -> list[str]:
        """The fields that this policy reads and that the solver leaves unset, so that they count as 0."""
        reads = self._policy.reads
        if self._policy.reads_base_lr or self._warm_up.iterations:
            reads = ("base_lr", *reads)
        return [field for field in reads if not _is_set(self._param, field)]

    def _refuse(self, field: str, rule: str, source: Source | None) -> None:
        raise SolverError(
            f"{field} is {getattr(self._param, field):g}; with lr_policy '{self.name}' it {rule}",
            location=locate(source, field),
        )


def _refuse_unknown(param: SolverParameter, source: Source | None) -> None:
    known = ", ".join(POLICIES)
    if not param.lr_policy:
        raise SolverError("the solver gives no lr_policy", location=locate(source), hint=f"known policies: {known}")
    near = nearest(param.lr_policy, POLICIES)
    guess = f" Did you mean '{near}'?" if near else ""
    raise SolverError(
        f"unknown lr_policy '{param.lr_policy}'.{guess}",
        location=locate(source, "lr_policy"),
        hint=f"known policies: {known}",
    )


def _steps_passed(param: SolverParameter, iteration: int) -> int:
    return sum(1 for _ in takewhile(lambda value: value <= iteration, param.stepvalue))


def _power(base: float, exponent: float) -> float:
    """`base ^ exponent` as IEEE arithmetic has it: infinity, not an exception, where it grows too large."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf
    except ValueError:  # 0 to a negative power
        return math.inf


def _is_set(param: SolverParameter, field: str) -> bool:
    value = getattr(param, field)
    return has_field(param, field) if isinstance(value, (int, float)) else len(value) > 0
