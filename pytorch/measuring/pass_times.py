"""Times the forward and the backward pass of a module, and when each parameter's gradient becomes ready."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from mgcaffe.errors import UsageError
from mgcaffe.pytorch.measuring.sample import SampleBatch
from mgcaffe.pytorch.measuring.stand_in import StandIn
from mgcaffe.solvers.monitor.stopwatch import Stopwatch

WARM_UP_PASSES = 2
"""Passes before those that count: caches and threads are cold."""


@dataclass(frozen=True)
class PassTimes:
    """What an iteration of one rank takes; medians, in seconds.

    Attributes:
        ready: by parameter, in the order in which gradients become ready: when, since the backward pass began.
        forward_s: the forward pass, with the loss.
        backward_s: the whole backward pass.
        missing: the parameters that require gradients and got none.
    """

    ready: dict[str, float]
    forward_s: float
    backward_s: float
    missing: tuple[str, ...] = ()


def measure_passes(stand_in: StandIn, sample: SampleBatch, passes: int) -> PassTimes:
    """Run a module forward and backward, and return the medians; some passes before them are not counted.

    Raises:
        UsageError: the module fails on the batch, or no parameter gets a gradient.
    """
    found: dict[str, list[float]] = {}
    forward: list[float] = []
    backward: list[float] = []
    with stand_in.untouched():
        for number in range(WARM_UP_PASSES + passes):
            seconds, whole, ready = _time_pass(stand_in, sample)
            if number < WARM_UP_PASSES:
                continue
            forward.append(seconds)
            backward.append(whole)
            for name, when in ready.items():
                found.setdefault(name, []).append(when)
    if not found:
        raise UsageError("no parameter gets a gradient from the sample batch", hint="the loss depends on none")
    # Parameters of one median stay in the order of the first pass, which dicts keep.
    medians = sorted(((name, statistics.median(times)) for name, times in found.items()), key=lambda item: item[1])
    missing = tuple(name for name in stand_in.trained if name not in found)
    return PassTimes(dict(medians), statistics.median(forward), statistics.median(backward), missing)


def _time_pass(stand_in: StandIn, sample: SampleBatch) -> tuple[float, float, dict[str, float]]:
    """Return the seconds of one forward pass, of its backward pass, and of each gradient since that began."""
    stopwatch = Stopwatch(stand_in.device)
    came: list[str] = []

    def note(name: str) -> Callable[[torch.Tensor], None]:
        def taken(_: torch.Tensor) -> None:
            stopwatch.lap()
            came.append(name)

        return taken

    def run(module: nn.Module) -> None:
        stopwatch.start()
        loss = sample.call(module)
        stopwatch.lap()
        loss.backward()
        stopwatch.lap()

    stand_in.clear_gradients()
    handles = [each.register_post_accumulate_grad_hook(note(name)) for name, each in stand_in.trained.items()]
    try:
        stand_in.run(run)
    finally:
        for handle in handles:
            handle.remove()
    forward, *laps = stopwatch.laps()
    ready: dict[str, float] = {}
    elapsed = 0.0
    for name, seconds in zip(came, laps, strict=False):
        elapsed += seconds
        ready.pop(name, None)  # a gradient that is added to several times is ready with the last one
        ready[name] = elapsed
    return forward, sum(laps), ready
