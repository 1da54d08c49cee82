"""A learning rate of its own for each parameter: LARS and LARC (You, Gitman and Ginsburg 2017, arXiv:1708.03888).

A parameter's rate follows from the norms of its weights w and of its gradient g, which is the mean over ranks and
micro-batches, clipped, without weight decay:

    local_lr_auto          rate * local_gw_ratio |w| / (|g| + weight_decay |w|)        (LARS, Intel's fork)
    larc, policy scale     rate * (1 - momentum) larc_eta |w| / |g|                    (LARC, NVIDIA's fork)
    larc, policy clip      min(rate, (1 - momentum) larc_eta |w| / |g|)

Where a norm is 0 the factor is 1 (with `clip`: the smaller one of rate and 1). As in the forks it stands in the place
of lr_mult, of which only 0 (a frozen parameter) keeps its meaning, and decay_mult does not enter it. A parameter is one
tensor; a norm is always that of a whole tensor, so it does not depend on how gradients were merged.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mgcaffe.engine.arena import ParameterArena
from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, Source, nearest
from mgcaffe.solvers.source import locate
from mgcaffe.solvers.update.norms import l2_norm
from mgcaffe.solvers.update.rules import Numbers

_LARC_POLICIES = ("scale", "clip")


class LocalRates:
    """The rates of one solver's parameters.

    Args:
        param: the SolverParameter message; `wanted` says whether it asks for such rates.
        solver_type: the rule's name.
        arena: the training net's.
        source: where the solver's fields stand, for errors.

    Attributes:
        warnings: multipliers of the net that are not read.

    Raises:
        SolverError: both kinds are wanted, the rule has none, or a field is out of range.
    """

    def __init__(
        self, param: SolverParameter, solver_type: str, arena: ParameterArena, source: Source | None = None
    ) -> None:
        _check(param, solver_type, source)
        self._param = param
        name = "larc" if param.larc else "local_lr_auto"
        passed_over = [piece for piece in arena.slices if piece.lr_mult not in (0, 1)]
        self.warnings = []
        if passed_over:
            self.warnings.append(
                f"{name} takes the place of lr_mult: that of {len(passed_over)} parameter(s) is neither 0 nor 1 and has"
                f" no effect (the first one is {passed_over[0].lr_mult:g} in layer '{passed_over[0].layer_name}')"
            )

    @staticmethod
    def wanted(param: SolverParameter) -> bool:
        """Return whether the solver asks for rates of this kind."""
        return bool(param.larc or param.local_lr_auto)

    def of(
        self, weights: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor], numbers: Numbers, scale: float
    ) -> list[float]:
        """Compute the rate of each parameter.

        Args:
            weights, gradients: each parameter's, flat and whole.
            numbers: what is the same for all of them.
            scale: factor on every gradient.
        """
        norms = [l2_norm(values) for values in (*weights, *gradients)]
        found = torch.stack(norms).tolist() if norms else []  # one transfer from the device
        return [
            self._rate(weight, abs(scale) * gradient, numbers)
            for weight, gradient in zip(found[: len(weights)], found[len(weights) :], strict=True)
        ]

    def _rate(self, weight: float, gradient: float, numbers: Numbers) -> float:
        param = self._param
        factor = 1.0
        if weight > 0 and gradient > 0:
            if param.larc:
                factor = (1 - numbers.momentum) * param.larc_eta * weight / gradient
            else:
                factor = param.local_gw_ratio * weight / (gradient + numbers.weight_decay * weight)
        return min(numbers.rate, factor) if param.larc and param.larc_policy == "clip" else numbers.rate * factor


def _check(param: SolverParameter, solver_type: str, source: Source | None) -> None:
    name, factor = ("larc", "larc_eta") if param.larc else ("local_lr_auto", "local_gw_ratio")
    if param.larc and param.local_lr_auto:
        raise SolverError(
            "larc and local_lr_auto are both given, and each computes the rate of a parameter",
            location=locate(source, "local_lr_auto"),
            hint="keep larc (NVIDIA's fork) or local_lr_auto (LARS, Intel's fork)",
        )
    if solver_type != "SGD":
        raise SolverError(
            f"{name} is given with solver type {solver_type}; only SGD computes a rate for each parameter",
            location=locate(source, name),
            hint=f"remove {name}, or choose type SGD",
        )
    if param.larc and param.momentum_policy != "opt" and not 0 <= param.momentum < 1:
        raise SolverError(
            f"momentum is {param.momentum:g}; with larc it must be at least 0 and below 1",
            location=locate(source, "momentum"),
        )
    if getattr(param, factor) <= 0:
        raise SolverError(
            f"{factor} is {getattr(param, factor):g} and must be above 0", location=locate(source, factor)
        )
    if param.larc and param.larc_policy not in _LARC_POLICIES:
        near = nearest(param.larc_policy, _LARC_POLICIES)
        guess = f" Did you mean '{near}'?" if near else ""
        raise SolverError(
            f"unknown larc_policy '{param.larc_policy}'.{guess}",
            location=locate(source, "larc_policy"),
            hint=f"known policies: {', '.join(_LARC_POLICIES)}",
        )
