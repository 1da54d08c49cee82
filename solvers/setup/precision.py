"""In how many bits a run computes products (`precision`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from mgcaffe.engine.kernels.precision import FLOAT32, FP16, PRECISIONS, Precision, is_slow, why_not
from mgcaffe.errors import EngineError, SolverError
from mgcaffe.prototxt import SolverParameter, Source
from mgcaffe.solvers.events import Emit, Noted, Warned
from mgcaffe.solvers.loss_scale import FIRST
from mgcaffe.solvers.source import locate

if TYPE_CHECKING:
    from mgcaffe.engine import Net


def choose_precision(
    param: SolverParameter, source: Source | None, device: torch.device, dtype: torch.dtype, emit: Emit
) -> Precision:
    """Return what the solver's field `precision` asks for.

    Args:
        param: the SolverParameter.
        source: where its fields stand.
        device, dtype: where and in what type the nets compute.
        emit: takes the events.

    Raises:
        SolverError: there is no such precision, or not on this device.
    """
    name = param.precision
    if problem := problem_of(name, device, dtype):
        text, hint = problem
        raise SolverError(f"precision '{name}': {text}", location=locate(source, "precision"), hint=hint)
    precision = PRECISIONS[name]
    if precision != FLOAT32:
        text = f"products are computed in {name}; weights, their gradients, statistics and losses in float32"
        emit(Noted(text + (f"; the factor on the loss begins at {FIRST:g}" if precision == FP16 else "")))
    if is_slow(precision, device):
        emit(Warned(slow_text(precision)))
    return precision


def precision_named(
    name: str, device: torch.device, dtype: torch.dtype, error: type[EngineError]
) -> tuple[Precision, str | None]:
    """Return the precision of a flag, and what to warn of.

    Raises:
        error: it cannot be had on this device.
    """
    if problem := problem_of(name, device, dtype):
        raise error(f"--precision {name}: {problem[0]}", hint=problem[1])
    precision = PRECISIONS[name]
    return precision, slow_text(precision) if is_slow(precision, device) else None


def problem_of(name: str, device: torch.device, dtype: torch.dtype) -> tuple[str, str] | None:
    """Return why a net cannot compute so, and what to do; None if it can."""
    if name not in PRECISIONS:
        return "there is no such precision", f"take one of {', '.join(PRECISIONS)}"
    return why_not(PRECISIONS[name], device, dtype)


def warn_of_losses(net: Net, precision: Precision, emit: Emit) -> None:
    """Name the user's layers that are losses with parameters of their own, whose gradients nobody else can scale."""
    if precision != FP16:
        return
    for node in net.nodes:
        if node.layer.may_ignore_top_diff and node.owned and any(node.loss_weights):
            emit(
                Warned(
                    f"layer '{node.layer.name}' is a loss with parameters of its own: in fp16 its backward has to "
                    "multiply all gradients by its top's, which holds the factor on the loss"
                )
            )


def slow_text(precision: Precision) -> str:
    """Say that the processor has no fast instructions for such products."""
    if precision == FP16:
        return "products in fp16 are for GPUs: a CPU makes them of rounded operands in float32, which takes longer"
    return (
        f"this processor has no fast instructions for products in {precision.name}: they are made of rounded operands "
        "in float32; a step takes longer than with precision float32"
    )
