"""The update rule of each solver type (Caffe: sgd_solver.cpp and its siblings in solvers/).

A rule takes a piece of the regularized gradient g and the same piece of its histories, which it brings up to
date, and returns the step that is subtracted from the weights: W <- W - step. `eta` is rate * lr_mult. A rule may
use the gradient's storage for the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, Source
from mgcaffe.solvers.source import locate

StepFunction = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Numbers:
    """What is the same for all pieces of one update.

    Attributes:
        param: the SolverParameter message.
        rate: the learning rate.
        iteration: updates done before this one.
        momentum, weight_decay: of this iteration (`rates.momentum_and_decay`).
        history_momentum: `momentum` as SGD's history is multiplied with it, corrected while the rate warms up.
    """

    param: SolverParameter
    rate: float
    iteration: int
    momentum: float
    weight_decay: float
    history_momentum: float


def _accept(param: SolverParameter, source: Source | None) -> list[str]:
    """Accept all fields."""
    return []


@dataclass(frozen=True)
class Rule:
    """One solver type.

    Attributes:
        step: makes the step of one piece: step(numbers, eta, gradient, *histories).
        histories: how many histories it keeps.
        check: refuses a SolverParameter that it cannot follow; returns warnings.
    """

    step: StepFunction
    histories: int = 1
    check: Callable[[SolverParameter, Source | None], list[str]] = _accept


def sgd(numbers: Numbers, eta: float, gradient: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
    """Momentum: h <- mu h + eta g; the step is h.

    The rate stands inside the history, so a change of rate leaves the speed gathered so far as it is.
    """
    if not numbers.history_momentum:
        return torch.mul(gradient, eta, out=history)
    return history.mul_(numbers.history_momentum).add_(gradient, alpha=eta)


def sgd_without_momentum(numbers: Numbers, eta: float, gradient: torch.Tensor) -> torch.Tensor:
    """SGD where momentum is 0 always: the step, eta g, takes the place of the gradient, and is what h would be."""
    return gradient.mul_(eta)


def nesterov(numbers: Numbers, eta: float, gradient: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
    """Nesterov's momentum: h' = mu h + eta g; the step is (1 + mu) h' - mu h."""
    momentum = numbers.momentum
    step = history * -momentum
    history.mul_(momentum).add_(gradient, alpha=eta)
    return step.add_(history, alpha=1 + momentum)


def adagrad(numbers: Numbers, eta: float, gradient: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
    """AdaGrad: h <- h + g^2; the step is eta g / (sqrt(h) + delta)."""
    history.addcmul_(gradient, gradient)
    return gradient.mul_(eta).div_(history.sqrt().add_(numbers.param.delta))


def rmsprop(numbers: Numbers, eta: float, gradient: torch.Tensor, history: torch.Tensor) -> torch.Tensor:
    """RMSProp: h <- rho h + (1 - rho) g^2, rho = rms_decay; the step is eta g / (sqrt(h) + delta)."""
    decay = numbers.param.rms_decay
    history.mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
    return gradient.mul_(eta).div_(history.sqrt().add_(numbers.param.delta))


def adadelta(
    numbers: Numbers, eta: float, gradient: torch.Tensor, squares: torch.Tensor, steps: torch.Tensor
) -> torch.Tensor:
    """AdaDelta, with a rate: h <- mu h + (1 - mu) g^2; u = g sqrt((k + delta) / (h + delta)).

    k <- mu k + (1 - mu) u^2; the step is eta u. mu is `momentum`.
    """
    decay, delta = numbers.momentum, numbers.param.delta
    squares.mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
    gradient.mul_((steps + delta).div_(squares + delta).sqrt_())
    steps.mul_(decay).addcmul_(gradient, gradient, value=1 - decay)
    return gradient.mul_(eta)


def adam(
    numbers: Numbers, eta: float, gradient: torch.Tensor, means: torch.Tensor, squares: torch.Tensor
) -> torch.Tensor:
    """Adam: m <- b1 m + (1 - b1) g; v <- b2 v + (1 - b2) g^2; t = iteration + 1.

    The step is eta sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + delta): delta stands outside the correction of
    the bias, as in the paper's last remark and unlike in PyTorch. b1 is `momentum`, b2 `momentum2`.
    """
    first, second = numbers.momentum, numbers.param.momentum2
    means.mul_(first).add_(gradient, alpha=1 - first)
    squares.mul_(second).addcmul_(gradient, gradient, value=1 - second)
    updates = numbers.iteration + 1
    correction = math.sqrt(1 - second**updates) / (1 - first**updates)
    torch.sqrt(squares, out=gradient).add_(numbers.param.delta)
    return torch.div(means, gradient, out=gradient).mul_(eta * correction)


def _check_no_momentum(param: SolverParameter, source: Source | None) -> list[str]:
    if param.momentum:
        raise SolverError(
            f"momentum is {param.momentum:g}; solver type {param.type} has no momentum",
            location=locate(source, "momentum"),
            hint="remove momentum, or choose another type",
        )
    return []


def _check_rmsprop(param: SolverParameter, source: Source | None) -> list[str]:
    if not 0 <= param.rms_decay < 1:
        raise SolverError(
            f"rms_decay is {param.rms_decay:g} and must be at least 0 and below 1",
            location=locate(source, "rms_decay"),
        )
    return _check_no_momentum(param, source)


def _check_adam(param: SolverParameter, source: Source | None) -> list[str]:
    for name in ("momentum", "momentum2"):
        if not 0 <= getattr(param, name) < 1:
            raise SolverError(
                f"{name} is {getattr(param, name):g}; with Adam it must be at least 0 and below 1",
                location=locate(source, name),
            )
    if param.HasField("momentum"):
        return []
    return ["solver type Adam reads momentum (beta 1), which is not set and counts as 0"]


RULES: dict[str, Rule] = {
    "SGD": Rule(sgd),
    "Nesterov": Rule(nesterov),
    "AdaGrad": Rule(adagrad, check=_check_no_momentum),
    "RMSProp": Rule(rmsprop, check=_check_rmsprop),
    "AdaDelta": Rule(adadelta, histories=2),
    "Adam": Rule(adam, histories=2, check=_check_adam),
}
