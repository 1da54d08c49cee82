"""Writes a trace of any module: how long its passes take, and when each parameter's gradient is ready."""

from __future__ import annotations

import os
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgcaffe.comm.planning.trace import Trace, TraceLayer, write_trace
from mgcaffe.errors import UsageError
from mgcaffe.pytorch.flat_gradients import buffer_type
from mgcaffe.pytorch.measuring.pass_times import PassTimes, measure_passes
from mgcaffe.pytorch.measuring.sample import Loss, SampleBatch
from mgcaffe.pytorch.measuring.stand_in import StandIn
from mgcaffe.pytorch.merged_gradient_parallel import MergedGradientParallel
from mgcaffe.pytorch.parameters import name_parameters

ELEMENT_BYTES = 4
"""What a trace's elements are, for `engine plan` and `engine simulate`."""


def trace_module(
    module: nn.Module,
    sample_batch: Any,
    path: str | os.PathLike[str] | None = None,
    *,
    loss: Loss | None = None,
    passes: int = 10,
) -> Trace:
    """Measure a module on one process, and write what `engine plan --trace` and `engine simulate --trace` read.

    The module stays as it is: parameters, gradients, buffers, random numbers, mode and hooks. Measured is the mode in
    which it is, so it should be that of training.

    Args:
        module: the module, on the device that it is trained on; of one that `MergedGradientParallel` or
            DistributedDataParallel wraps, what is inside is measured.
        sample_batch: what it is called with: a tensor, a tuple of arguments or a dict of keyword arguments.
        path: the file; None: the trace is only returned.
        loss: makes a scalar of its output; None: the sum of all tensors in it that have gradients.
        passes: how many forward and backward passes to take the medians of.

    Returns:
        The trace: the parameters with a gradient as its layers, in the reverse of the order in which these become
        ready. Elements are of 4 bytes, as gradients travel: float64 counts twice.

    Raises:
        UsageError: the module fails on the batch, no parameter gets a gradient, or an argument is wrong.
        EngineError: with exit code 73, when the file cannot be written.
    """
    if passes < 1:
        raise UsageError(f"passes={passes} is no number of passes: it has to be at least 1")
    if isinstance(module, MergedGradientParallel | DistributedDataParallel):
        module = module.module
    stand_in = StandIn(module)
    times = measure_passes(stand_in, SampleBatch(sample_batch, loss), passes)
    trace = _trace(stand_in, times)
    if path is not None:
        remarks = [f"{type(module).__name__} on {stand_in.device}: medians of {passes} passes"]
        if times.missing:
            remarks.append(f"without a gradient: {name_parameters(times.missing)}")
        write_trace(os.fspath(path), trace, remarks)
    return trace


def _trace(stand_in: StandIn, times: PassTimes) -> Trace:
    layers = []
    before = 0.0
    for name, ready in times.ready.items():
        layers.append(TraceLayer(name, sent_bytes(stand_in.parameters[name]) // ELEMENT_BYTES, ready - before))
        before = ready
    if times.backward_s > before:
        layers.append(TraceLayer("(input)", 0, times.backward_s - before))
    return Trace(tuple(reversed(layers)), times.forward_s)


def sent_bytes(parameter: nn.Parameter) -> int:
    """Return the bytes of a parameter's gradient as `MergedGradientParallel` sends it: 16-bit types as float32."""
    count = parameter.numel() * (2 if parameter.is_complex() else 1)
    return count * buffer_type(parameter.dtype).itemsize
