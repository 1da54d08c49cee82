"""The learning-rate policies: pure functions of the iteration (Caffe: sgd_solver.cpp, GetLearningRate).

`iteration` is the number of updates that the weights have seen. A rate depends on nothing else, so a solver
that is stopped, resumed or asked twice always gives the same one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import nearest
from mgcaffe.solvers.source import locate

Formula = Callable[[Any, int], float]


def fixed(param: Any, iteration: int) -> float:
    """Rate = base_lr."""
    return param.base_lr


def step(param: Any, iteration: int) -> float:
    """Rate = base_lr * gamma ^ floor(iteration / stepsize)."""
    return param.base_lr * _power(param.gamma, iteration // param.stepsize)


def exp(param: Any, iteration: int) -> float:
    """Rate = base_lr * gamma ^ iteration."""
    return param.base_lr * _power(param.gamma, iteration)


def inv(param: Any, iteration: int) -> float:
    """Rate = base_lr * (1 + gamma * iteration) ^ -power."""
    return param.base_lr * _power(1 + param.gamma * iteration, -param.power)


def multistep(param: Any, iteration: int) -> float:
    """Rate = base_lr * gamma ^ (number of leading stepvalues that are <= iteration).

    Caffe goes up by at most one step a call, which lags behind after a resume; this counts from the
    iteration.
    """
    return param.base_lr * _power(param.gamma, _steps_passed(param, iteration))


def poly(param: Any, iteration: int) -> float:
    """Rate = base_lr * (1 - iteration / max_iter) ^ power, and 0 ^ power from max_iter on."""
    return param.base_lr * _power(max(0.0, 1 - iteration / param.max_iter), param.power)


def sigmoid(param: Any, iteration: int) -> float:
    """Rate = base_lr / (1 + e ^ (-gamma * (iteration - stepsize))): falls where gamma is negative."""
    return param.base_lr / (1 + _power(math.e, -param.gamma * (iteration - param.stepsize)))


@dataclass(frozen=True)
class _Policy:
    """A formula and what it asks of the solver's fields."""

    formula: Formula
    reads: tuple[str, ...] = ()
    above_zero: tuple[str, ...] = ()
    not_negative: tuple[str, ...] = ()


POLICIES: dict[str, _Policy] = {
    "fixed": _Policy(fixed),
    "step": _Policy(step, ("gamma",), ("stepsize",), ("gamma",)),
    "exp": _Policy(exp, ("gamma",), (), ("gamma",)),
    "inv": _Policy(inv, ("gamma", "power"), (), ("gamma",)),
    "multistep": _Policy(multistep, ("gamma", "stepvalue"), (), ("gamma",)),
    "poly": _Policy(poly, ("power",), ("max_iter",)),
    "sigmoid": _Policy(sigmoid, ("gamma",), ("stepsize",)),
}


class LearningRatePolicy:
    """The policy that a solver asks for, its fields checked.

    Args:
        param: the SolverParameter message.
        source: where its fields stand in the user's file, if that is known.

    Raises:
        SolverError: the policy is missing or unknown, or a field lies outside its range.
    """

    def __init__(self, param: Any, source: Any = None) -> None:
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

    def rate(self, iteration: int) -> float:
        """The learning rate of the update that `iteration` updates precede."""
        return self._policy.formula(self._param, iteration)

    def current_step(self, iteration: int) -> int:
        """How many steps the rate has gone down: Caffe's `current_step` in a solverstate."""
        if self.name == "step":
            return iteration // self._param.stepsize
        return _steps_passed(self._param, iteration) if self.name == "multistep" else 0

    def unset_fields(self) -> list[str]:
        """The fields that this policy reads and that the solver leaves unset, so that they count as 0."""
        reads = ("base_lr", *self._policy.reads)
        return [field for field in reads if not _is_set(self._param, field)]

    def _refuse(self, field: str, rule: str, source: Any) -> None:
        raise SolverError(
            f"{field} is {getattr(self._param, field):g}; with lr_policy '{self.name}' it {rule}",
            location=locate(source, field),
        )


def _refuse_unknown(param: Any, source: Any) -> None:
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


def _steps_passed(param: Any, iteration: int) -> int:
    return sum(1 for _ in takewhile(lambda value: value <= iteration, param.stepvalue))


def _power(base: float, exponent: float) -> float:
    """`base ^ exponent` as IEEE arithmetic has it: infinity, not an exception, where it grows too large."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf
    except ValueError:  # 0 to a negative power
        return math.inf


def _is_set(param: Any, field: str) -> bool:
    value = getattr(param, field)
    return param.HasField(field) if isinstance(value, (int, float)) else len(value) > 0
