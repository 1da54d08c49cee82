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

from mgcaffe.comm.planning.cost import Cost
from mgcaffe.comm.planning.plan import Group, Plan

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
    due = {group.first_segment: group for group in plan.groups}
    for layer in range(plan.layers - 1, -1, -1):
        replay.compute(backward_times[layer])
        if layer in due:
            replay.submit(due[layer])
    replay.compute(tail)
    backward_end = replay.now
    groups = replay.finish()
    return replace(plan, groups=groups, backward_end=backward_end, blocking=channel.blocking)


class ComputingThread:
    """A computing thread, and beside it at most one all-reduce, of which a subclass says which it is.

    Attributes:
        now: the time, in seconds.
        channel: how all-reduces are made.
        left: of the running group's work, as a part of 1.
    """

    def __init__(self, channel: Channel) -> None:
        self.now = 0.0
        self.channel = channel
        self.left = 0.0
        self._speed = max(LEAST_SPEED, 1.0 - channel.slowdown)

    @property
    def running(self) -> Group | None:
        """The group that is being reduced."""
        raise NotImplementedError

    def end_group(self) -> None:
        """Take note that the running group is reduced; start the next, if any."""
        raise NotImplementedError

    def compute(self, seconds: float) -> None:
        """Let the computing thread do what takes it so many seconds alone."""
        while seconds > 0:
            if self.running is None:
                self.now += seconds
                return
            whole = self.channel.beside(self.running.bytes)
            until_end = self.left * whole
            if seconds / self._speed < until_end:
                self.now += seconds / self._speed
                self.left -= seconds / self._speed / whole
                return
            seconds -= until_end * self._speed
            self.now += until_end
            self.end_group()


class _Replay(ComputingThread):
    """One iteration: a computing thread, and a queue of groups that are reduced one after the other."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._queue: list[tuple[Group, float]] = []
        self._started = 0.0
        self._done: list[Group] = []

    @property
    def running(self) -> Group | None:
        """The first in the queue."""
        return self._queue[0][0] if self._queue else None

    def submit(self, group: Group) -> None:
        """Queue a group whose gradients are complete."""
        self._queue.append((group, self.now))
        if len(self._queue) == 1:
            self._begin_group()

    def finish(self) -> tuple[Group, ...]:
        """Let the computing thread wait for the rest; return all groups with their times."""
        while self._queue:
            self.now += self.left * self.channel.alone(self._queue[0][0].bytes)
            self.end_group()
        return tuple(self._done)

    def _begin_group(self) -> None:
        self.left, self._started = 1.0, self.now

    def end_group(self) -> None:
        """Take the first from the queue."""
        group, ready = self._queue.pop(0)
        self._done.append(replace(group, ready_at=ready, start_at=self._started, end_at=self.now))
        if self._queue:
            self._begin_group()
