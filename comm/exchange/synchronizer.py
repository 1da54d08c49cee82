"""Makes the ranks' gradients agree: what the solver calls while the backward pass runs, until it has the means.

    sync.start(arena.diff, segments)          once
    sync.begin_iteration()                    every iteration
    sync.gradients_ready(segment)             last micro-batch, layer by layer downwards
    report = sync.wait()                      before the update

`wait(on_group)` calls a function with each group's place in the buffer as soon as its means have come, while later
groups are still on their way: there it can be updated. Or the tail is left to run on beside the next forward pass:

    sync.defer(on_group)                      instead of wait
    sync.wait_for_segment(segment)            before a layer's forward pass: its group, and those sent before it
    report = sync.finish()                    before anything else that needs all means

The solver never asks which synchronizer it has: that of one rank, or a `MergedAllReduce` (`merged_all_reduce.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from mgcaffe.comm.exchange.comm_report import CommReport, OnGroup
from mgcaffe.comm.planning.plan import Plan, Segment

if TYPE_CHECKING:
    import numpy
    import torch


class Synchronizer(Protocol):
    """Makes the ranks' gradients agree."""

    @property
    def plan(self) -> Plan | None:
        """The plan in use, if any."""

    def start(self, flat_diff: torch.Tensor | numpy.ndarray, segments: Sequence[Segment]) -> None:
        """Take the flat gradient buffer and each layer's segment of it, by layer."""

    def begin_iteration(self) -> None:
        """Expect the gradients of a new iteration."""

    def gradients_ready(self, segment: int, count: int = 1) -> None:
        """Take note that `count` segments from this one upwards hold their complete gradients; called downwards."""

    def backward_done(self) -> None:
        """Take note that the backward pass has ended, if `wait` or `defer` don't follow at once."""

    def wait(self, on_group: OnGroup | None = None) -> CommReport:
        """Return when the whole buffer holds the means over the ranks; `on_group` gets each group as it comes."""

    def defer(self, on_group: OnGroup) -> None:
        """Leave the rest to `wait_for_segment` and `finish`, which call `on_group` with each group."""

    def wait_for_segment(self, segment: int) -> None:
        """Return when what was deferred of a segment has come."""

    def finish(self) -> CommReport | None:
        """Return when all that was deferred has come; None where nothing was."""

    def set_plan(self, plan: Plan, *, afterwards: bool = False, one_by_one: bool = False) -> None:
        """Use another plan from the next iteration on; a collective call, between iterations.

        With `afterwards`, no group is handed over before the backward pass has ended, which nothing disturbs then. With
        `one_by_one`, no group's all-reduce begins before the last one's has ended: of two at a time the second ends
        shortly after the first, and neither's time says what an all-reduce costs.
        """

    def close(self) -> None:
        """End; harmless when repeated."""


class NoSynchronizer:
    """One rank: its gradients are the means already."""

    def __init__(self) -> None:
        self._segments: list[Segment] = []

    def start(self, flat_diff: torch.Tensor | numpy.ndarray, segments: Sequence[Segment]) -> None:
        """Keep the segments."""
        self._segments = list(segments)

    def begin_iteration(self) -> None:
        """Do nothing."""

    def gradients_ready(self, segment: int, count: int = 1) -> None:
        """Do nothing."""

    def backward_done(self) -> None:
        """Do nothing."""

    def wait(self, on_group: OnGroup | None = None) -> CommReport:
        """Give all segments to `on_group` and return an empty report."""
        if on_group is not None:
            for segment in reversed(self._segments):
                on_group(segment.offset, segment.count)
        return CommReport()

    def defer(self, on_group: OnGroup) -> None:
        """Give all segments to `on_group`."""
        self.wait(on_group)

    def wait_for_segment(self, segment: int) -> None:
        """Do nothing: nothing is ever deferred."""

    def finish(self) -> None:
        """Return None: nothing is ever deferred."""

    @property
    def plan(self) -> Plan | None:
        """None: nothing travels."""
        return None

    def set_plan(self, plan: Plan, *, afterwards: bool = False, one_by_one: bool = False) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
