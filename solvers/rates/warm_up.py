"""The first iterations' learning rate, before the policy's own (Intel's fork: linear; NVIDIA's: quadratic).

    warmup_iter, warmup_start_lr    rate = start + (base_lr - start) * i / warmup_iter          for i < warmup_iter
    rampup_interval, rampup_lr      rate = start + (base_lr - start) * (i / rampup_interval)^2  for i < rampup_interval

The policy counts its iterations from 0 all the same: a `multistep` that goes down at 1000 does so at 1000.
"""

from __future__ import annotations

from dataclasses import dataclass

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, Source
from mgcaffe.solvers.rates.rate_schedules import RateSchedule, clip, linear, quadratic
from mgcaffe.solvers.source import locate

_NOT_NEGATIVE = ("warmup_iter", "rampup_interval", "warmup_start_lr", "rampup_lr")


@dataclass(frozen=True)
class WarmUp:
    """The rates of the iterations before the policy takes over.

    Attributes:
        schedule: the rates, not below min_lr.
        iterations: how many there are; 0: none.
        corrects_momentum: whether SGD's momentum follows the rate (Intel's fork).
    """

    schedule: RateSchedule
    iterations: int
    corrects_momentum: bool

    @classmethod
    def of(cls, param: SolverParameter) -> WarmUp:
        """Make the warm-up that a SolverParameter message, checked by `check_warm_up`, asks for."""
        if param.warmup_iter:
            schedule = linear(param.warmup_start_lr, param.base_lr, param.warmup_iter)
        else:
            schedule = quadratic(param.rampup_lr, param.base_lr, param.rampup_interval)
        iterations = param.warmup_iter or param.rampup_interval
        return cls(clip(schedule, param.min_lr), iterations, corrects_momentum=param.warmup_iter > 0)

    def momentum_factor(self, iteration: int) -> float:
        """Return the factor on momentum by which steps that were made at a lower rate count at the present one.

        It is rate(i) / rate(i - 1) while the rate rises linearly (Intel's fork), and 1 otherwise. Where the rate before
        was 0 nothing is in the history: Intel's fork divides by 0 there, and here the factor is 1.
        """
        if not self.corrects_momentum or iteration >= self.iterations:
            return 1.0
        rate, before = self.schedule(iteration), self.schedule(max(iteration - 1, 0))
        return rate / before if rate and before else 1.0


def check_warm_up(param: SolverParameter, source: Source | None = None) -> None:
    """Check the fields of both forks' warm-ups.

    Args:
        param: the SolverParameter message.
        source: where its fields stand in the user's file, if that is known.

    Raises:
        SolverError: a field is negative, or both forks' fields are given.
    """
    for field in _NOT_NEGATIVE:
        if getattr(param, field) < 0:
            raise SolverError(
                f"{field} is {getattr(param, field):g} and must not be negative", location=locate(source, field)
            )
    if param.warmup_iter and param.rampup_interval:
        raise SolverError(
            "warmup_iter and rampup_interval are both given, and each says how the rate begins",
            location=locate(source, "rampup_interval"),
            hint="keep warmup_iter (a linear warm-up) or rampup_interval (a quadratic one)",
        )
