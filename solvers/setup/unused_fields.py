"""Warns of fields that a solver gives and that its other choices do not read.

Caffe's formulas share fields: gamma belongs to some policies, momentum2 to one solver type. One that is given without
the choice that reads it has no effect; Caffe does not say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from mgcaffe.prototxt import SolverParameter, Source
from mgcaffe.solvers.rates.policies import POLICIES, fields_read
from mgcaffe.solvers.source import locate

# Field: (whether it is read, and by what it would be).
_READ_BY: dict[str, tuple[Callable[[SolverParameter], bool], str]] = {
    "delta": (lambda param: param.type not in ("SGD", "Nesterov"), "AdaGrad, RMSProp, AdaDelta and Adam"),
    "larc_eta": (lambda param: param.larc, "larc"),
    "larc_policy": (lambda param: param.larc, "larc"),
    "larc_turbo": (lambda param: param.larc, "larc"),
    "local_gw_ratio": (lambda param: param.local_lr_auto, "local_lr_auto"),
    "max_momentum": (lambda param: param.momentum_policy != "fixed", "momentum_policy 'poly' and 'opt'"),
    "max_weight_decay": (lambda param: param.weight_decay_policy != "fixed", "weight_decay_policy 'poly'"),
    "momentum2": (lambda param: param.type == "Adam", "solver type Adam"),
    "momentum_power": (lambda param: param.momentum_policy == "poly", "momentum_policy 'poly'"),
    "rampup_lr": (lambda param: param.rampup_interval != 0, "rampup_interval"),
    "rms_decay": (lambda param: param.type == "RMSProp", "solver type RMSProp"),
    "row_wise_adagrad": (lambda param: param.type == "AdaGrad", "solver type AdaGrad"),
    "warmup_start_lr": (lambda param: param.warmup_iter != 0, "warmup_iter"),
    "weight_decay_power": (lambda param: param.weight_decay_policy != "fixed", "weight_decay_policy 'poly'"),
}

# Read by the training loop as well.
_OF_EVERY_POLICY = {"max_iter"}


def unused_fields(param: SolverParameter, source: Source | None = None) -> list[str]:
    """Return a warning for each field that is given, differs from its default, and is not read.

    Args:
        param: the SolverParameter message.
        source: where its fields stand in the user's file, if that is known.
    """
    return [f"{locate(source, field) or 'solver'}: {field} has no effect: {reason}" for field, reason in _unused(param)]


def _unused(param: SolverParameter) -> Iterator[tuple[str, str]]:
    given = {field.name for field, value in param.ListFields() if value != field.default_value}
    for field, (is_read, readers) in _READ_BY.items():
        if field in given and not is_read(param):
            yield field, f"only {readers} would read it"
    if param.lr_policy not in POLICIES:  # an error elsewhere
        return
    of_policies = {field for policy in POLICIES.values() for field in policy.reads}
    for field in sorted(of_policies & given - _OF_EVERY_POLICY - set(fields_read(param))):
        yield field, f"lr_policy '{param.lr_policy}' does not read it"
