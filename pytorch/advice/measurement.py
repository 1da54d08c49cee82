"""Measures on all ranks what predictions need: passes, the cost of an all-reduce, and how both slow each other down.

The backward passes are those of the module, run on parameters that stand in for its own. Their gradients are exchanged
by `solvers/exchange`, whose first phase (`comm/tuning/measuring.py`) measures, over a communicator of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from mgcaffe.comm import Communicator, Segment
from mgcaffe.comm.tuning.calibration import agree_times
from mgcaffe.comm.tuning.decision import Decision
from mgcaffe.errors import CommError, UsageError
from mgcaffe.pytorch.advice.agreement import on_all_ranks
from mgcaffe.pytorch.measuring.pass_times import PassTimes, measure_passes
from mgcaffe.pytorch.measuring.sample import SampleBatch
from mgcaffe.pytorch.measuring.stand_in import StandIn
from mgcaffe.pytorch.options import ExchangeOptions
from mgcaffe.pytorch.parameters import name_parameters
from mgcaffe.solvers.events import Event, Noted, PlanChosen, Warned
from mgcaffe.solvers.exchange.averaging import GradientAveraging
from mgcaffe.solvers.exchange.gradient_buffer import GradientBuffer

_PLAIN_PASSES = 5
_ELEMENT_BYTES = 4


@dataclass(frozen=True)
class Measurement:
    """What was measured, the same on all ranks.

    Attributes:
        order: the parameters in the order in which rank 0's gradients become ready.
        ready: when each of them is ready on the slowest rank, in seconds since the backward pass began; ascending.
        forward_s: the forward pass with the loss, on the slowest rank.
        decision: what else was measured (`comm/tuning`): the backward pass, costs, contention.
        warnings: what is to be said beside the figures.
    """

    order: tuple[str, ...]
    ready: tuple[float, ...]
    forward_s: float
    decision: Decision
    warnings: tuple[str, ...]

    @property
    def backward_s(self) -> float:
        """The backward pass without communication beside it."""
        return self.decision.timings.total


def measure(
    stand_in: StandIn,
    sample: SampleBatch,
    communicator: Communicator,
    options: ExchangeOptions,
    *,
    may_lack: bool,
) -> Measurement:
    """Measure on all ranks; a collective call.

    Args:
        stand_in: the parameters.
        sample: this rank's batch.
        communicator: the ranks.
        options: how gradients are to travel; its `calibration_iterations` passes are run with communication.
        may_lack: whether parameters may get no gradient; they count as ready when the backward pass begins.

    Raises:
        UsageError: on all ranks alike: a pass fails on a rank, or parameters get no gradient. Where a module has
            collective calls of its own, the other ranks wait in these until they time out.
    """
    times = on_all_ranks(communicator, lambda: _local_times(stand_in, sample, may_lack))
    (forward,) = agree_times(communicator, [times.forward_s])
    rest = [name for name in stand_in.trained if name not in times.ready]
    order = communicator.broadcast_object([*rest, *times.ready])
    probe = _Probe(stand_in, sample, order, communicator, options)
    try:
        decision = probe.run(options.calibration_iterations)
    finally:
        probe.close()
    ready, elapsed = [], 0.0
    for seconds in reversed(decision.timings.backward_times):
        elapsed += seconds
        ready.append(elapsed)
    return Measurement(tuple(order), tuple(ready), forward, decision, tuple(probe.warnings))


def _local_times(stand_in: StandIn, sample: SampleBatch, may_lack: bool) -> PassTimes:
    times = measure_passes(stand_in, sample, _PLAIN_PASSES)
    if times.missing and not may_lack:
        raise UsageError(
            f"no gradient from the sample batch for {name_parameters(times.missing)}",
            hint="in training DistributedDataParallel would raise an error. Give the loss of training as loss=, or wrap"
            "\n  the module with find_unused_parameters=True",
        )
    return times


class _Probe:
    """Backward passes whose gradients are exchanged, until it is known what that costs."""

    def __init__(
        self,
        stand_in: StandIn,
        sample: SampleBatch,
        order: Sequence[str],
        communicator: Communicator,
        options: ExchangeOptions,
    ) -> None:
        self._stand_in = stand_in
        self._sample = sample
        self.warnings: list[str] = []
        self._decision: Decision | None = None
        segments, offset = [], 0
        for name in reversed(order):
            count = -(-stand_in.parameters[name].nbytes // _ELEMENT_BYTES)
            segments.append(Segment(name, offset, count))
            offset += count
        self._segments = segments
        self._segment_of = {segment.name: number for number, segment in enumerate(segments)}
        self._communicator = communicator
        self._flat = on_all_ranks(
            communicator, lambda: torch.zeros(offset, device=stand_in.device), "making a buffer for all gradients"
        )
        self._averaging = GradientAveraging(
            GradientBuffer(self._flat, segments), communicator, options.solver_parameter(), None, self._take
        )
        self._is_ready = bytearray(len(segments))
        self._next = -1

    def run(self, passes: int) -> Decision:
        """Run so many passes, and return what was found; a pass that fails on a rank ends all ranks."""
        with self._stand_in.untouched():
            for number in range(passes):
                self._stand_in.clear_gradients()
                on_all_ranks(self._communicator, lambda: self._stand_in.run(self._pass))
                self._averaging.after_update(number + 1)
        if self._decision is None:
            raise CommError(f"{passes} passes are too few to measure with", hint="give more passes")
        return self._decision

    def close(self) -> None:
        """End the exchange."""
        self._averaging.close()

    def _pass(self, module: nn.Module) -> None:
        """Run a pass and exchange its gradients; one that fails still sends all of them, as the others wait for it."""
        count = len(self._segments)
        loss: torch.Tensor | None = None
        failure: Exception | None = None
        try:
            loss = self._sample.call(module)
        except Exception as error:
            failure = error
        self._is_ready, self._next = bytearray(count), count - 1
        self._averaging.begin()
        if loss is not None:
            try:
                self._backward(loss)
            except CommError:
                raise
            except Exception as error:
                failure = error
        for segment in range(count):
            self._ready(segment)
        self._averaging.backward_done()
        self._averaging.wait()
        if failure is not None:
            raise failure

    def _backward(self, loss: torch.Tensor) -> None:
        hooks = [
            each.register_post_accumulate_grad_hook(self._hook(name)) for name, each in self._stand_in.trained.items()
        ]
        try:
            loss.backward()
        finally:
            for hook in hooks:
                hook.remove()

    def _hook(self, name: str) -> Callable[[torch.Tensor], None]:
        segment = self._segment_of[name]
        place = self._segments[segment]

        def taken(parameter: torch.Tensor) -> None:
            gradient = parameter.grad
            if gradient is not None and gradient.dtype == self._flat.dtype and not gradient.is_sparse:
                # As into a bucket; other types stay zeros, of as many bytes.
                self._flat[place.offset : place.offset + place.count].view(gradient.shape).copy_(gradient)
            self._ready(segment)

        return taken

    def _ready(self, segment: int) -> None:
        """Take note of a gradient, and hand over those whose turn it is."""
        self._is_ready[segment] = True
        while self._next >= 0 and self._is_ready[self._next]:
            self._averaging.gradients_ready(self._next)
            self._next -= 1

    def _take(self, event: Event) -> None:
        if isinstance(event, PlanChosen):
            self._decision = event.decision
        elif isinstance(event, Warned) or (isinstance(event, Noted) and event.text.startswith("EMULATED LINK")):
            self.warnings.append(event.text)
