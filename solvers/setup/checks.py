"""Solver fields that are not supported: an error where they change what is trained, else a warning.

Nothing in a solver file is ignored without a warning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mgcaffe.errors import SolverError
from mgcaffe.prototxt import SolverParameter, Source, check_names, has_field
from mgcaffe.solvers.setup.unused_fields import unused_fields
from mgcaffe.solvers.source import locate

# Fields of Caffe's forks that change the weights, with the values that change nothing.
_CHANGES_TRAINING: dict[str, Any] = {"disabled_update": False}

# Fields without effect here, and why.
_WITHOUT_EFFECT = {
    "ap_version": "detection is not evaluated",
    "eval_type": "only Caffe's own test scores are computed",
    "engine": "there is one engine",
    "show_per_class_result": "detection is not evaluated",
    "solver_data_type": "all arithmetic runs in the type that the engine was started with",
    "store_blobs_in_old_format": "snapshots have Caffe's present form",
    "test_and_snapshot_last_epochs": "test_interval and snapshot alone decide",
    "test_offset": "tests start at the first record",
}

_AT_LEAST = {
    "average_loss": 1,
    "display": 0,
    "iter_size": 1,
    "max_iter": 0,
    "snapshot": 0,
    "snapshot_keep": 0,
    "test_interval": 0,
}


def check_fields(param: SolverParameter, source: Source | None = None) -> list[str]:
    """Check the fields that no other part of the solver checks.

    Returns:
        Warnings: fields that have no effect.

    Raises:
        SolverError: a field out of range, or one that would change the training and is not supported.
    """
    check_names(param, source)
    for name, least in _AT_LEAST.items():
        if getattr(param, name) < least:
            raise SolverError(
                f"{name} is {getattr(param, name)} and must be at least {least}",
                location=locate(source, name),
            )
    if param.winograd != SolverParameter.OFF and param.autotune in ("", "off"):
        raise SolverError(
            f"winograd is {SolverParameter.Winograd.Name(param.winograd)}: it says what autotune may choose, and "
            "autotune is off",
            location=locate(source, "winograd"),
            hint='set autotune: "on" (--autotune=on), or winograd: OFF',
        )
    for field, value in param.ListFields():
        for index, number in enumerate(value if isinstance(value, Sequence) else [value]):
            if isinstance(number, float) and math.isnan(number):
                raise SolverError(
                    f"{field.name} is nan and must be a number", location=locate(source, field.name, index)
                )
    for name, neutral in _CHANGES_TRAINING.items():
        if getattr(param, name) != neutral:
            raise SolverError(
                f"{name} is not supported, and leaving it out would train something else",
                location=locate(source, name),
                hint=f"remove {name} to train without it",
            )
    return _warnings(param, source)


def _warnings(param: SolverParameter, source: Source | None) -> list[str]:
    warnings = [
        f"{locate(source, name) or 'solver'}: {name} has no effect: {reason}"
        for name, reason in _WITHOUT_EFFECT.items()
        if has_field(param, name)
    ]
    warnings += unused_fields(param, source)
    if param.debug_info and not param.display:
        warnings.append("debug_info shows of training the iterations that display shows, and display is 0")
    if param.test_interval and not param.test_iter:
        warnings.append(
            f"{locate(source, 'test_interval') or 'solver'}: test_interval has no effect: without test_iter nothing is"
            " tested"
        )
    for index, count in enumerate(param.test_iter):
        if not count:
            where = locate(source, "test_iter", index) or "solver"
            warnings.append(f"{where}: test_iter is 0: test net #{index} is built, and tests run no batch of it")
    if not param.HasField("max_iter"):
        warnings.append("max_iter is not set and counts as 0: nothing is trained, except by pycaffe's step")
    return warnings
