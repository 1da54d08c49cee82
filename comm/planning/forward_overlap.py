"""What a plan comes to whose last groups travel beside the next forward pass (`overlap_forward`).

An iteration then ends with groups on their way. The next one's forward pass goes on until a layer reads parameters
whose group has not come, and updates what has come. So what is lowest is needed first, though it is ready last:
whenever the channel is free, the lowest group that is ready goes next. Played iteration after iteration until each is
like the one before, that gives an order, which the plan keeps (`Plan.sending`), also where it is predicted anew: what
every rank sends when must not depend on its own clock, and what was tried is what is kept.

With the channel never idle an iteration lasts as long as its communication, or its computation, whichever is more;
without `overlap_forward` it lasts the forward pass longer than the first of these (DeAR, arXiv 2302.12445, and
ByteScheduler, arXiv 1905.03960, gain the same by other means).
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from heapq import heappop, heappush

from mgcaffe.comm.planning.plan import Group, Plan
from mgcaffe.comm.planning.prediction import Channel, ComputingThread, predict_plan
from mgcaffe.comm.planning.timings import ForwardTimes, Timings


class Overlap(Enum):
    """Whether the last groups may travel beside the next forward pass."""

    NEVER = "never"
    ALWAYS = "always"
    TRY = "try"


_MOST_ITERATIONS = 6
_SAME = 1e-6


def predict(plan: Plan, timings: Timings, channel: Channel) -> Plan:
    """Return the plan with the times that are to be expected on a channel, whether it overlaps the forward pass or not.

    Args:
        plan: its groups and, if it has one, its order count, not its times.
        timings: of the passes; where the forward pass was not measured it counts as no time at all: that gives an
            order, but no prediction of what is waited for.
        channel: how it communicates.
    """
    if not plan.overlaps_forward:
        return predict_plan(plan, timings.backward_times, timings.tail, channel)
    if timings.forward is None:
        nothing = ForwardTimes([0.0] * plan.layers, 0.0, 0.0, 0.0, 0.0)
        return replace(_predict_overlapped(plan, timings, nothing, channel), waits=None)
    return _predict_overlapped(plan, timings, timings.forward, channel)


def overlapping(plan: Plan) -> Plan:
    """Return a plan that was made without overlap as one with it, in the order that its own times suggest."""
    if plan.overlaps_forward:
        return plan
    left = list(range(len(plan.groups)))
    sending: list[int] = []
    free = 0.0
    while left:
        ready = [number for number in left if plan.groups[number].ready_at <= free]
        # Where nothing was measured, nothing tells that the lowest is ready when the highest is.
        number = ready[-1] if ready and plan.backward_end > 0 else left[0]
        chosen = plan.groups[number]
        free = max(free, chosen.ready_at) + chosen.end_at - chosen.start_at
        left.remove(number)
        sending.append(number)
    return replace(plan, overlaps_forward=True, sending=tuple(sending))


def waiting(plan: Plan) -> Plan:
    """Return a plan as one that waits for all its groups before an iteration ends."""
    return replace(plan, overlaps_forward=False, sending=(), waits=None) if plan.overlaps_forward else plan


def _predict_overlapped(plan: Plan, timings: Timings, forward: ForwardTimes, channel: Channel) -> Plan:
    """Return the plan with the times that are to be expected, and with them its order, if it had none."""
    played = _Played(plan, timings, forward, channel)
    seconds = 0.0
    for number in range(_MOST_ITERATIONS):
        before, seconds = seconds, played.iterate()
        # The first one finds nothing on its way.
        if number > 1 and abs(seconds - before) <= _SAME * seconds:
            break
    groups, backward_end = played.finish()
    return replace(
        plan,
        groups=groups,
        backward_end=backward_end,
        blocking=channel.blocking,
        sending=plan.sending or tuple(sorted(range(len(groups)), key=lambda number: groups[number].start_at)),
        waits=max(0.0, seconds - forward.total - backward_end),
    )


class _Played(ComputingThread):
    """Iterations one after the other: a computing thread, and a channel that sends one group at a time."""

    def __init__(self, plan: Plan, timings: Timings, forward: ForwardTimes, channel: Channel) -> None:
        super().__init__(channel)
        self._plan = plan
        self._timings = timings
        self._forward = forward
        self._bytes = sum(group.bytes for group in plan.groups)
        self._due = {group.first_segment: number for number, group in enumerate(plan.groups)}
        reads = sorted((seconds, layer) for layer, seconds in enumerate(forward.needed))
        owner = {
            layer: number
            for number, group in enumerate(plan.groups)
            for layer in range(group.first_segment, group.last_segment + 1)
        }
        self._reads = [(seconds, owner[layer]) for seconds, layer in reads if layer in owner]
        self._began = 0.0
        self._backward_end = 0.0
        # A heap of groups' ranks in the order of sending: where there is none yet, the lowest layers go first.
        self._ranks = {number: rank for rank, number in enumerate(plan.sending)}
        self._waiting: list[tuple[int, int]] = []
        self._sent = 0
        self._ready: dict[int, float] = {}
        self._started: dict[int, float] = {}
        self._ended: dict[int, float] = {}
        self._sending: int | None = None
        self._come: list[int] = []  # groups that were reduced, but not used for an update

    @property
    def running(self) -> Group | None:
        """The group that is being sent."""
        return None if self._sending is None else self._plan.groups[self._sending]

    def iterate(self) -> float:
        """Play an iteration, from the start of its forward pass to that of the next; return its seconds."""
        start = self.now
        self._run_forward()
        self._ready, self._started, self._ended = {}, {}, {}
        self._sent = 0
        self._began = self.now
        for layer in range(self._plan.layers - 1, -1, -1):
            self.compute(self._timings.backward_times[layer])
            if layer in self._due:
                self._ready[self._due[layer]] = self.now
                number = self._due[layer]
                heappush(self._waiting, (self._ranks.get(number, -number), number))
                self._send()
        self.compute(self._timings.tail)
        self._backward_end = self.now
        self._pass_time(self._forward.rest + self._forward.agreement)
        return self.now - start

    def finish(self) -> tuple[tuple[Group, ...], float]:
        """Play the next forward pass; return the last iteration's groups, and the end of its backward pass."""
        self._run_forward()
        groups = [
            replace(
                group,
                ready_at=self._ready[number] - self._began,
                start_at=self._started[number] - self._began,
                end_at=self._ended[number] - self._began,
            )
            for number, group in enumerate(self._plan.groups)
        ]
        return tuple(groups), self._backward_end - self._began

    def _run_forward(self) -> None:
        elapsed = 0.0
        for seconds, number in self._reads:
            self.compute(seconds - elapsed)
            elapsed = seconds
            self._take(number)
        self.compute(self._forward.first_forward - elapsed)
        for number in range(len(self._plan.groups)):
            self._take(number)
        self.compute(self._forward.forward - max(self._forward.first_forward, elapsed))

    def _take(self, number: int) -> None:
        """Wait for a group, and make the updates of all that have come."""
        if number not in self._ready:
            return  # the first iteration finds nothing on its way
        while number not in self._ended:
            assert self.running is not None
            self.now += self.left * self.channel.alone(self.running.bytes)
            self.end_group()
        while self._come:
            seconds = self._forward.update * self._plan.groups[self._come.pop()].bytes / max(1, self._bytes)
            self.compute(seconds)

    def _pass_time(self, seconds: float) -> None:
        """Let time pass that communication does not make longer."""
        end = self.now + seconds
        while self.running is not None:
            until_end = self.left * self.channel.beside(self.running.bytes)
            if self.now + until_end > end:
                self.left -= (end - self.now) / until_end * self.left
                break
            self.now += until_end
            self.end_group()
        self.now = end

    def _send(self) -> None:
        """Start the group whose turn it is, if it is ready and the channel is free."""
        if self._sending is not None or not self._waiting:
            return
        rank, number = self._waiting[0]
        if self._ranks and rank != self._sent:
            return
        heappop(self._waiting)
        self._sent += 1
        self._sending, self.left = number, 1.0
        self._started[number] = self.now

    def end_group(self) -> None:
        """Note when it ended; its update is due."""
        assert self._sending is not None
        self._ended[self._sending] = self.now
        self._come.append(self._sending)
        self._sending = None
        self._send()
