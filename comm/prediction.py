"""What a plan comes to where communication and computation are in each other's way.

The paper assumes that they are not (arXiv 1912.09268). On one machine without a GPU an all-reduce is the same
cores' work: measured there, a second of it beside the backward pass can cost the backward pass most of a second.
So a way of communicating (`Channel`) has three measured properties, and a plan is replayed with them:

- while an all-reduce runs, the backward pass gets on with `1 - slowdown` of its speed;
- beside the backward pass a group of M bytes takes `beside(M)`, afterwards `alone(M)`, and one that is still
  running when the backward pass ends does the rest of its work at the second speed.

With `slowdown` 0 and equal costs this is what `planners.predict_groups` says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mgcaffe.comm.cost import Cost
from mgcaffe.comm.plan import Group, Plan

LEAST_SPEED = 0.05
"""Of the backward pass beside an all-reduce: however it is measured, it gets on somehow."""


@dataclass(frozen=True)
class Channel:
    """A way of communicating, as it was measured.

    Attributes:
        blocking: whether by MPI's blocking call (`communicator.Waiting`).
        beside: what an all-reduce costs beside the backward pass.
        alone: what it costs when the computing thread only waits for it.
        slowdown: the seconds that a second of communication adds to the backward pass beside it.
    """

    blocking: bool
    beside: Cost
    alone: Cost
    slowdown: float = 0.0


def predict_plan(plan: Plan, backward_times: Sequence[float], tail: float, channel: Channel) -> Plan:
    """Return the plan with the times that are to be expected on a channel.

    Args:
        plan: its groups count, not its times.
        backward_times: of each layer alone, in seconds, by layer.
        tail: what the backward pass does below the lowest layer, in seconds.
        channel: how it communicates.
    """
    replay = _Replay(channel)
    due = {group.first_layer: group for group in plan.groups}
    for layer in range(plan.layers - 1, -1, -1):
        replay.compute(backward_times[layer])
        if layer in due:
            replay.submit(due[layer])
    replay.compute(tail)
    backward_end = replay.now
    groups = replay.finish()
    return replace(plan, groups=groups, backward_end=backward_end, blocking=channel.blocking)


class _Replay:
    """One iteration: a computing thread, and a queue of groups that are reduced one after the other."""

    def __init__(self, channel: Channel) -> None:
        self.now = 0.0
        self._channel = channel
        self._speed = max(LEAST_SPEED, 1.0 - channel.slowdown)
        self._queue: list[tuple[Group, float]] = []
        self._left = 0.0  # of the running group's work, as a part of 1
        self._started = 0.0
        self._done: list[Group] = []

    def compute(self, seconds: float) -> None:
        """Let the backward pass do what takes it so many seconds alone."""
        while seconds > 0:
            if not self._queue:
                self.now += seconds
                return
            whole = self._channel.beside(self._queue[0][0].bytes)
            until_end = self._left * whole
            if seconds / self._speed < until_end:
                self.now += seconds / self._speed
                self._left -= seconds / self._speed / whole
                return
            seconds -= until_end * self._speed
            self.now += until_end
            self._end_group()

    def submit(self, group: Group) -> None:
        """Queue a group whose gradients are complete."""
        self._queue.append((group, self.now))
        if len(self._queue) == 1:
            self._begin_group()

    def finish(self) -> tuple[Group, ...]:
        """Let the computing thread wait for the rest; return all groups with their times."""
        while self._queue:
            self.now += self._left * self._channel.alone(self._queue[0][0].bytes)
            self._end_group()
        return tuple(self._done)

    def _begin_group(self) -> None:
        self._left, self._started = 1.0, self.now

    def _end_group(self) -> None:
        group, ready = self._queue.pop(0)
        self._done.append(replace(group, ready_at=ready, start_at=self._started, end_at=self.now))
        if self._queue:
            self._begin_group()
