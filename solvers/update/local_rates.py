"""A learning rate of its own for each parameter: LARS and LARC (You, Gitman and Ginsburg 2017, arXiv:1708.03888).

A parameter's rate follows from the norms of its weights w and of its gradient g, which is the mean over ranks and
micro-batches, clipped, without weight decay:

    local_lr_auto          rate * local_gw_ratio |w| / (|g| + weight_decay |w|)        (LARS, Intel's fork)
    larc, policy scale     rate * (1 - momentum) larc_eta |w| / |g|                    (LARC, NVIDIA's fork)
    larc, policy clip      min(rate, (1 - momentum) larc_eta |w| / |g|)
    larc_turbo             of either policy: 0.9 c is taken off (1 - momentum) larc_eta |w| / |g|, where
                           c <- 0.95 c + 0.05 cos(g, h)

h is the history before the update, cos 0 where one of the two is 0, and c begins with 0: a parameter whose gradients go
on in the direction of its steps is slowed down, and the factor can fall below 0 (NVIDIA's sgd_solver.cpp). c is part of
a snapshot, which the fork's is without.

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
from mgcaffe.solvers.update.norms import dot, l2_norm
from mgcaffe.solvers.update.rules import Numbers

_LARC_POLICIES = ("scale", "clip")
_KEPT = 0.95
_SLOWING = 0.9
"""Constants of larc_turbo in the fork."""


class LocalRates:
    """The rates of one solver's parameters.

    Args:
        param: the SolverParameter message; `wanted` says whether it asks for such rates.
        solver_type: the rule's name.
        arena: the training net's.
        source: where the solver's fields stand, for errors.

    Attributes:
        correlations: with larc_turbo, c of each parameter that trains, by its offset in the arena.
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
        self.correlations = {piece.offset: 0.0 for piece in arena.slices if piece.lr_mult} if _has_turbo(param) else {}
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
        self,
        weights: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor],
        histories: Sequence[torch.Tensor],
        numbers: Numbers,
        scale: float,
    ) -> list[float]:
        """Return the rate of each parameter, for one update; with larc_turbo this counts the update.

        Args:
            weights, gradients, histories: each parameter's, flat and whole.
            numbers: what is the same for all of them.
            scale: factor on every gradient.
        """
        values = [l2_norm(each) for each in (*weights, *gradients)]
        if self.correlations:
            values += [l2_norm(history) for history in histories]
            values += [dot(gradient, history) for gradient, history in zip(gradients, histories, strict=True)]
        found = torch.stack(values).tolist() if values else []  # one transfer from the device
        count = len(weights)
        norms = list(zip(found[:count], found[count : 2 * count], strict=True))
        slowing = [0.0] * count
        if self.correlations:
            products = zip(found[count : 2 * count], found[2 * count : 3 * count], found[3 * count :], strict=True)
            offsets = [int(each.storage_offset()) for each in weights]
            slowing = [self._slowing(offset, *product) for offset, product in zip(offsets, products, strict=True)]
        return [
            self._rate(weight, abs(scale) * gradient, numbers, less)
            for (weight, gradient), less in zip(norms, slowing, strict=True)
        ]

    def _slowing(self, offset: int, gradient: float, history: float, product: float) -> float:
        """Return what a parameter's factor is lowered by, after this update's share; the norms and the dot product."""
        cosine = product / (gradient * history) if gradient > 0 and history > 0 else 0.0
        self.correlations[offset] = _KEPT * self.correlations[offset] + (1 - _KEPT) * cosine
        return _SLOWING * self.correlations[offset]

    def _rate(self, weight: float, gradient: float, numbers: Numbers, less: float) -> float:
        param = self._param
        factor = 1.0
        if weight > 0 and gradient > 0:
            if param.larc:
                factor = (1 - numbers.momentum) * param.larc_eta * weight / gradient
            else:
                factor = param.local_gw_ratio * weight / (gradient + numbers.weight_decay * weight)
        factor -= less
        return min(numbers.rate, factor) if param.larc and param.larc_policy == "clip" else numbers.rate * factor


def _has_turbo(param: SolverParameter) -> bool:
    return bool(param.larc and param.larc_turbo)


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
