"""The keyword arguments of `MergedGradientParallel` that say how gradients travel, as the engine's settings."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from mgcaffe.comm.planning.schedules import SCHEDULES
from mgcaffe.comm.tuning.settings import AUTO
from mgcaffe.errors import UsageError
from mgcaffe.prototxt import SolverParameter

_TYPES = ("float32", "float16", "bfloat16")
MIN_TIMEOUT_S = 2.0
_TRANSPORTS = (AUTO, "gloo", "nccl", "mpi")


@dataclass(frozen=True)
class ExchangeOptions:
    """How gradients are merged and sent.

    Attributes:
        schedule: `auto`, `single`, `wfbp`, `threshold`, `mgwfbp` or `optimal`.
        plan_file: a file that holds the plan, which is then never replaced.
        bucket_mb: the size of the groups of `threshold`, in MiB.
        allreduce_type: in which type gradients travel; `float32`: as they are.
        hierarchical: whether ranks of one host first add up among themselves.
        cost_file: where the measured costs of an all-reduce are kept for later runs.
        deterministic: whether nothing is measured, so that every run sends the same groups.
        calibration_iterations: how many backward passes are measured before planning.
        transport: over what gradients travel: `auto`, `gloo`, `nccl` or `mpi` (`comm/exchange/transports.py`).
        emulate_link: the link to emulate, such as `a=1e-3,b=3e-8`.

    Raises:
        UsageError: a value that is none of those.
    """

    schedule: str = AUTO
    plan_file: str | os.PathLike[str] | None = None
    bucket_mb: float = 25.0
    allreduce_type: str = "float32"
    hierarchical: bool = False
    cost_file: str | os.PathLike[str] | None = None
    deterministic: bool = False
    calibration_iterations: int = 10
    transport: str = AUTO
    emulate_link: str | None = None

    def __post_init__(self) -> None:
        known = (AUTO, *SCHEDULES)
        if self.schedule not in known:
            raise UsageError(f"there is no schedule '{self.schedule}'", hint=f"known: {', '.join(known)}")
        if self.allreduce_type not in _TYPES:
            raise UsageError(
                f"gradients cannot travel as allreduce_type='{self.allreduce_type}'", hint=f"known: {', '.join(_TYPES)}"
            )
        if self.transport not in _TRANSPORTS:
            raise UsageError(f"there is no transport '{self.transport}'", hint=f"known: {', '.join(_TRANSPORTS)}")
        if not self.bucket_mb > 0:
            raise UsageError(f"bucket_mb={self.bucket_mb} is no size: it has to be above 0")
        if self.calibration_iterations < 0:
            raise UsageError(f"calibration_iterations={self.calibration_iterations} is below 0")

    @classmethod
    def of(cls, schedule: str, options: Mapping[str, Any]) -> ExchangeOptions:
        """Return the options of keyword arguments.

        Raises:
            UsageError: there is no such argument, or it has a wrong value.
        """
        known = [field.name for field in fields(cls)]
        for name in options:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                raise UsageError(
                    f"MergedGradientParallel has no argument '{name}'",
                    hint=f"Did you mean '{close[0]}'?" if close else "docs/pytorch.md lists those it has",
                )
        return cls(schedule, **options)

    def compared(self) -> dict[str, Any]:
        """Return what has to be the same on all ranks, by name; of files, whether there is one."""
        values = asdict(self)
        for name in ("plan_file", "cost_file"):
            values[name] = None if values[name] is None else "a file"
        return values

    def solver_parameter(self) -> SolverParameter:
        """Return these options as the exchange of a solver's gradients takes them.

        No group is left to the next forward pass: the optimizer, which is not ours, reads all gradients before it.
        """
        param = SolverParameter()
        comm = param.comm_param
        comm.schedule = type(comm).Schedule.Value(self.schedule.upper())
        comm.allreduce_type = type(comm).WireType.Value(self.allreduce_type.upper())
        comm.bucket_mb = self.bucket_mb
        comm.hierarchical = self.hierarchical
        comm.deterministic = self.deterministic
        comm.calibration_iterations = self.calibration_iterations
        comm.overlap_forward = False
        if self.transport != AUTO:
            comm.transport = type(comm).Transport.Value(self.transport.upper())
        if self.plan_file is not None:
            comm.plan_file = os.fspath(self.plan_file)
        if self.cost_file is not None:
            comm.cost_file = os.fspath(self.cost_file)
        if self.emulate_link is not None:
            comm.emulate_link = self.emulate_link
        return param


def checked_timeout(seconds: float) -> float:
    """Return `peer_timeout`.

    Raises:
        UsageError: ranks cannot be judged in so short a time.
    """
    if seconds != 0 and not seconds >= MIN_TIMEOUT_S:
        raise UsageError(
            f"peer_timeout={seconds} is too short: ranks give signs of life twice a second",
            hint=f"give {MIN_TIMEOUT_S:g} seconds or more, or 0 for never",
        )
    return seconds
