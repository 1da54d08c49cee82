"""Predict a plan's times where communication and computation slow each other down.

The paper assumes that they do not (arXiv 1912.09268). On one machine without a GPU an all-reduce is the same
cores' work: measured there, each second of it beside the backward pass can cost the backward pass most of a second.
So a way of communicating (`Channel`) has three measured properties, and a plan is simulated with them:

- while an all-reduce runs, computation runs at `1 - slowdown` of its speed;
- beside computation a group of M bytes takes `beside(M)` seconds, while the computing thread only waits `alone(M)`,
  and a group that is still running when the backward pass ends does the rest of its work at the second speed.

With `slowdown` 0 and equal costs the result is that of `schedules.predict_groups`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from mgcaffe.comm.planning.cost import Cost
from mgcaffe.comm.planning.plan import Group, Plan

MIN_RELATIVE_SPEED = 0.05
"""The least speed of computation beside an all-reduce, relative to its speed alone: it never stops altogether."""

Choice = Callable[[Sequence[int], int], int | None]
"""Chooses the next group to send from those that are ready (at least one, the first ready first), given how many have
been sent; None: the group whose turn it is, is not ready."""


@dataclass(frozen=True)
class Channel:
    """A way of communicating, as it was measured.

    Attributes:
        blocking: whether by MPI's blocking call (`communicator.Waiting`).
        beside: the cost of an all-reduce beside computation.
        alone: its cost while the computing thread only waits for it.
        slowdown: the seconds that each second of communication adds to the computation beside it.
    """

    blocking: bool
    beside: Cost
    alone: Cost
    slowdown: float = 0.0


def predict_plan(plan: Plan, backward_times: Sequence[float], tail: float, channel: Channel) -> Plan:
    """Return the plan with the times that are to be expected on a channel, where it waits for all its groups.

    Args:
        plan: its groups count, not its times.
        backward_times: the seconds of each layer's backward pass alone, by layer.
        tail: the seconds of the backward pass below the lowest layer.
        channel: how it communicates.
    """
    queue = GroupQueue(plan.groups, first_ready)
    thread = ComputingThread(channel, queue)
    thread.run_backward(plan, backward_times, tail)
    backward_end = thread.now
    for group in range(len(plan.groups)):
        thread.wait_for(group)
    return replace(plan, groups=queue.times(), backward_end=backward_end, blocking=channel.blocking)


def first_ready(ready: Sequence[int], sent: int) -> int:
    """Choose the group that has been ready for the longest time."""
    return ready[0]


class GroupQueue:
    """The groups of one iteration on a channel, which sends one of them at a time; all times in seconds.

    Args:
        groups: those of the plan; a group is named by its index.
        choose: which group goes next whenever the channel is free.

    Attributes:
        running: the group that is being sent, or None.
        work_left: the part of its all-reduce that is left, from 1 down to 0.
        updates_due: groups that were reduced and not yet used for an update, the latest one last.
    """

    def __init__(self, groups: Sequence[Group], choose: Choice) -> None:
        self._groups = groups
        self._choose = choose
        self._ready: list[int] = []
        self._ready_at: dict[int, float] = {}
        self._start_at: dict[int, float] = {}
        self._end_at: dict[int, float] = {}
        self.running: int | None = None
        self.work_left = 0.0
        self.updates_due: list[int] = []

    @property
    def running_bytes(self) -> int:
        """The size of the group that is being sent."""
        assert self.running is not None
        return self._groups[self.running].bytes

    def is_reduced(self, group: int) -> bool:
        """Return whether the all-reduce of a group has ended."""
        return group in self._end_at

    def submit(self, group: int, now: float) -> None:
        """Take a group whose gradients are complete."""
        self._ready_at[group] = now
        self._ready.append(group)
        self._start_next(now)

    def end_running(self, now: float) -> None:
        """End the all-reduce that is running, and start the next one."""
        assert self.running is not None
        self._end_at[self.running] = now
        self.updates_due.append(self.running)
        self.running = None
        self._start_next(now)

    def times(self, since: float = 0.0) -> tuple[Group, ...]:
        """Return all groups, which have been reduced, with their times since a given one."""
        return tuple(
            replace(
                group,
                ready_at=self._ready_at[index] - since,
                start_at=self._start_at[index] - since,
                end_at=self._end_at[index] - since,
            )
            for index, group in enumerate(self._groups)
        )

    def _start_next(self, now: float) -> None:
        if self.running is not None or not self._ready:
            return
        group = self._choose(self._ready, len(self._start_at))
        if group is None:
            return
        self._ready.remove(group)
        self._start_at[group] = now
        self.running, self.work_left = group, 1.0


class ComputingThread:
    """A computing thread beside a channel that sends one group at a time.

    Attributes:
        now: the time in seconds.
        queue: the groups that are being sent; a new one may be set while nothing is running.
    """

    def __init__(self, channel: Channel, queue: GroupQueue) -> None:
        self.now = 0.0
        self.queue = queue
        self._channel = channel
        self._speed = max(MIN_RELATIVE_SPEED, 1.0 - channel.slowdown)

    def run_backward(self, plan: Plan, backward_times: Sequence[float], tail: float) -> None:
        """Compute a backward pass, and submit each group of a plan when its lowest layer is done."""
        complete = {group.first_segment: index for index, group in enumerate(plan.groups)}
        for layer in range(plan.layers - 1, -1, -1):
            self.compute(backward_times[layer])
            if layer in complete:
                self.queue.submit(complete[layer], self.now)
        self.compute(tail)

    def compute(self, seconds: float) -> None:
        """Compute what takes so many seconds without communication; beside an all-reduce it takes longer."""
        while seconds > 0:
            if self.queue.running is None:
                self.now += seconds
                return
            whole = self._channel.beside(self.queue.running_bytes)
            until_end = self.queue.work_left * whole
            if seconds / self._speed < until_end:
                self.now += seconds / self._speed
                self.queue.work_left -= seconds / self._speed / whole
                return
            seconds -= until_end * self._speed
            self.now += until_end
            self.queue.end_running(self.now)

    def pause(self, seconds: float) -> None:
        """Let so many seconds pass, which communication does not make longer; groups travel meanwhile."""
        end = self.now + seconds
        while self.queue.running is not None:
            until_end = self.queue.work_left * self._channel.beside(self.queue.running_bytes)
            if self.now + until_end > end:
                self.queue.work_left -= (end - self.now) / until_end * self.queue.work_left
                break
            self.now += until_end
            self.queue.end_running(self.now)
        self.now = end

    def wait_for(self, group: int) -> None:
        """Wait until a group that was submitted is reduced."""
        while not self.queue.is_reduced(group):
            self.now += self.queue.work_left * self._channel.alone(self.queue.running_bytes)
            self.queue.end_running(self.now)
