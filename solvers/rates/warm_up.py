"""The first iterations' learning rate, before the policy's own (Intel's fork: linear; NVIDIA's: quadratic).

    warmup_iter, warmup_start_lr    rate = start + (base_lr - start) * i / warmup_iter          for i < warmup_iter
    rampup_interval, rampup_lr      rate = start + (base_lr - start) * (i / rampup_interval)^2  for i < rampup_interval

The policy counts its iterations from 0 all the same: a `multistep` that goes down at 1000 does so at 1000.
"""

from __future__ import annotations

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, Source
from mgcaffe.solvers.source import locate

_LENGTHS = ("warmup_iter", "rampup_interval")
_STARTS = ("warmup_start_lr", "rampup_lr")


class WarmUp:
    """The rates of the iterations before the policy takes over.

    Args:
        param: the SolverParameter message.
        source: where its fields stand in the user's file, if that is known.

    Attributes:
        iterations: how many there are; 0: none.

    Raises:
        SolverError: a field is negative, or both forks' fields are given.
    """

    def __init__(self, param: SolverParameter, source: Source | None = None) -> None:
        for field in (*_LENGTHS, *_STARTS):
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
        self._is_linear: bool = param.warmup_iter > 0
        self.iterations: int = param.warmup_iter or param.rampup_interval
        self._start: float = param.warmup_start_lr if self._is_linear else param.rampup_lr
        self._base_lr: float = param.base_lr
        self._min_lr: float = param.min_lr

    def rate(self, iteration: int) -> float | None:
        """The learning rate, not below min_lr; None where the policy gives it."""
        if iteration >= self.iterations:
            return None
        done = iteration / self.iterations
        rate = self._start + (self._base_lr - self._start) * (done if self._is_linear else done * done)
        return max(rate, self._min_lr)

    def momentum_factor(self, iteration: int) -> float:
        """What momentum is multiplied with, so that a history of steps made at a lower rate counts at the present one.

        It is rate(i) / rate(i - 1) while the rate rises linearly (Intel's fork), and 1 otherwise. Where the rate before
        was 0 nothing is in the history: Intel's fork divides by 0 there, and here the factor is 1.
        """
        rate = self.rate(iteration) if self._is_linear else None
        before = self.rate(max(iteration - 1, 0))
        return rate / before if rate and before else 1.0
