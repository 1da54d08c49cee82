"""What was measured of the computation, on the slowest rank; all times in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class IterationTimes:
    """What one rank's computing thread did in an iteration, without waiting for data; all times in seconds.

    Attributes:
        total: the whole iteration, with what was waited for since the iteration before.
        until_backward: the part of it before the backward pass began whose gradients are exchanged.
        needed: by layer with gradients, from the start of the iteration until a layer first read its parameters.
        first_forward: until the first forward pass had ended.
        forward: `until_backward` without what was waited for before the iteration: the forward pass and, with
            iter_size, the earlier micro-batches.
        update: the updates of all weights.
        agreement: what the ranks took after the backward pass to agree on the loss, with gradients on their way.
    """

    total: float
    until_backward: float
    needed: Sequence[float]
    first_forward: float
    forward: float
    update: float
    agreement: float

    def overlapped(self, before: IterationTimes, forward: float) -> float:
        """Return what an iteration took whose last groups travelled beside this one's forward pass.

        That is the time from the start of the iteration before until this one's backward pass begins, without the first
        of the two forward passes. Ranks are level at either end, having just agreed on a plan and just waited for the
        last group; between two iterations no rank waits for another.

        Args:
            before: the times of that iteration, before which nothing was on its way.
            forward: what its forward pass took, or one like it, in seconds; equal on all ranks.
        """
        return before.forward + before.total - before.until_backward + self.until_backward - forward


@dataclass(frozen=True)
class ForwardTimes:
    """What an iteration does besides its backward pass and waiting for gradients, undisturbed.

    Attributes:
        needed, first_forward, forward, update: as those of `IterationTimes`.
        rest: everything else, but for the agreement.
        agreement: where an iteration waits for gradients that is a part of the waiting; where it does not, it comes on
            top.
    """

    needed: Sequence[float]
    first_forward: float
    forward: float
    update: float
    rest: float
    agreement: float = 0.0

    @property
    def total(self) -> float:
        """All seconds of it except those of the agreement."""
        return self.forward + self.update + self.rest


@dataclass(frozen=True)
class Timings:
    """What was measured of the passes, in seconds.

    Attributes:
        backward_times: of each layer with gradients, by layer.
        tail: the rest of the backward pass, below the lowest of them.
        forward: what an iteration does besides; None where it was not measured.
    """

    backward_times: Sequence[float]
    tail: float = 0.0
    forward: ForwardTimes | None = None

    @property
    def total(self) -> float:
        """The seconds of the backward pass without any communication beside it."""
        return sum(self.backward_times) + self.tail

    def scaled(self, factor: float) -> Timings:
        """Return the same with layers whose backward pass takes `factor` times as long; the tail stays."""
        return replace(self, backward_times=[factor * seconds for seconds in self.backward_times])
