"""Momentum and weight decay that change with the iterations (NVIDIA's fork: sgd_solver.cpp), and decoupled decay.

    momentum_policy      fixed   momentum
                         poly    momentum + (max_momentum - momentum) * (i / max_iter) ^ momentum_power
                         opt     (1 - sqrt(rate) / 2)^2, at most max_momentum where that is given
    weight_decay_policy  fixed   weight_decay
                         poly    weight_decay + (max_weight_decay - weight_decay) * (i / max_iter) ^ weight_decay_power

From max_iter on both stay where they are. Momentum policies are SGD's, as in the fork, whose other types read
`momentum` alone; they are refused there instead.
"""

from __future__ import annotations

import math

from mgcaffe.errors import Location, SolverError
from mgcaffe.prototxt import SolverParameter, Source, nearest
from mgcaffe.solvers.rates.rate_schedules import RateSchedule, fixed, ramp
from mgcaffe.solvers.rates.warm_up import WarmUp
from mgcaffe.solvers.source import locate
from mgcaffe.solvers.update.rules import Numbers

_MOMENTUM_POLICIES = ("fixed", "poly", "opt")
_DECAY_POLICIES = ("fixed", "poly")


class MomentumAndDecay:
    """Gives the numbers of each update.

    Args:
        param: the SolverParameter message.
        solver_type: the rule's name.
        source: where its fields stand in the user's file, if that is known.

    Attributes:
        warnings: what the user should know of the fields that are read.

    Raises:
        SolverError: an unknown policy, a field outside its range, or a policy that the rule does not follow.
    """

    def __init__(self, param: SolverParameter, solver_type: str, source: Source | None = None) -> None:
        self._param = param
        self._source = source
        self.warnings: list[str] = []
        self._check_momentum(solver_type)
        self._check_decay()
        # Only SGD's history holds whole steps, so only there Intel's fork corrects momentum while the rate rises.
        self._warm_up = WarmUp.of(param) if solver_type == "SGD" else None

    def numbers(self, rate: float, iteration: int) -> Numbers:
        """Return the numbers of one update.

        Args:
            rate: its learning rate.
            iteration: updates done before it.
        """
        momentum = self._momentum(rate)(iteration)
        factor = self._warm_up.momentum_factor(iteration) if self._warm_up is not None else 1.0
        return Numbers(self._param, rate, iteration, momentum, self._weight_decay()(iteration), momentum * factor)

    def _momentum(self, rate: float) -> RateSchedule:
        """Make the schedule of momentum_policy; that of `opt` holds for this learning rate alone."""
        param = self._param
        if param.momentum_policy == "poly":
            return _poly(param.momentum, param.max_momentum, param.momentum_power, param.max_iter)
        if param.momentum_policy == "fixed":
            return fixed(param.momentum)
        momentum = (1 - 0.5 * math.sqrt(max(rate, 0.0))) ** 2
        return fixed(min(momentum, param.max_momentum) if param.HasField("max_momentum") else momentum)

    def _weight_decay(self) -> RateSchedule:
        """Make the schedule of weight_decay_policy."""
        param = self._param
        if param.weight_decay_policy == "poly":
            return _poly(param.weight_decay, param.max_weight_decay, param.weight_decay_power, param.max_iter)
        return fixed(param.weight_decay)

    # -- checks ------------------------------------------------------------------------------------------

    def _check_momentum(self, solver_type: str) -> None:
        param = self._param
        self._check_name("momentum_policy", _MOMENTUM_POLICIES)
        if param.momentum_policy == "fixed":
            return
        if solver_type != "SGD":
            raise SolverError(
                f"momentum_policy is '{param.momentum_policy}'; solver type {solver_type} has no momentum policy, only"
                " SGD has",
                location=self._place("momentum_policy"),
                hint="remove momentum_policy, or choose type SGD",
            )
        if not 0 <= param.max_momentum < 1:
            self._refuse("max_momentum", "must be at least 0 and below 1")
        if param.momentum_policy == "poly":
            self._check_range("momentum_policy", "momentum_power")
        elif param.HasField("momentum"):
            self.warnings.append("momentum has no effect: momentum_policy 'opt' computes it from the learning rate")

    def _check_decay(self) -> None:
        param = self._param
        self._check_name("weight_decay_policy", _DECAY_POLICIES)
        if param.weight_decay_policy == "poly":
            self._check_range("weight_decay_policy", "weight_decay_power")
            if param.max_weight_decay < 0:
                self._refuse("max_weight_decay", "must not be negative")
            if not param.HasField("max_weight_decay"):
                self.warnings.append(
                    "weight_decay_policy 'poly' reads max_weight_decay, which is not set and counts as 0"
                )
        if param.decoupled_weight_decay and param.regularization_type != "L2":
            raise SolverError(
                f"decoupled_weight_decay with regularization_type '{param.regularization_type}': only L2 decay can be"
                " decoupled",
                location=self._place("decoupled_weight_decay"),
            )

    def _check_name(self, field: str, known: tuple[str, ...]) -> None:
        value = getattr(self._param, field)
        if value in known:
            return
        near = nearest(value, known)
        guess = f" Did you mean '{near}'?" if near else ""
        raise SolverError(
            f"unknown {field} '{value}'.{guess}",
            location=self._place(field),
            hint=f"known policies: {', '.join(known)}",
        )

    def _check_range(self, policy: str, power: str) -> None:
        if self._param.max_iter <= 0:
            raise SolverError(
                f"max_iter is {self._param.max_iter}; with {policy} 'poly' it must be above 0",
                location=self._place("max_iter"),
            )
        if getattr(self._param, power) < 0:
            self._refuse(power, "must not be negative")

    def _refuse(self, field: str, rule: str) -> None:
        raise SolverError(f"{field} is {getattr(self._param, field):g} and {rule}", location=self._place(field))

    def _place(self, field: str) -> Location | None:
        return locate(self._source, field)


def _poly(start: float, end: float, power: float, max_iter: int) -> RateSchedule:
    """Make the schedule start + (end - start) * (i / max_iter) ^ power, and `end` from max_iter on."""
    return ramp(start, end, max_iter, lambda done: done**power)
