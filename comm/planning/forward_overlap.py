"""Predict plans whose last groups travel beside the next forward pass (`overlap_forward`).

An iteration then ends with groups on their way. The next one's forward pass goes on until a layer reads parameters
whose group has not come, and updates what has come. So the lowest layers are needed first, though they are ready last:
whenever the channel is free, the lowest group that is ready goes next. Iterations are simulated until each is like the
one before; that gives an order, which the plan keeps (`Plan.sending`), also where it is predicted again: what every
rank sends when must not depend on its own clock, and the plan that was tried is the one that is used.

With the channel never idle an iteration lasts as long as its communication, or its computation, whichever is more;
without `overlap_forward` it lasts the forward pass longer than the first of these (DeAR, arXiv 2302.12445, and
ByteScheduler, arXiv 1905.03960, gain the same by other means).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from mgcaffe.comm.planning.plan import Group, Plan
from mgcaffe.comm.planning.prediction import Channel, Choice, ComputingThread, GroupQueue, predict_plan
from mgcaffe.comm.planning.timings import ForwardTimes, Timings


class Overlap(Enum):
    """Whether the last groups may travel beside the next forward pass."""

    NEVER = "never"
    ALWAYS = "always"
    TRY = "try"


_MAX_ITERATIONS = 6
_SAME_DURATION = 1e-6
"""The relative difference up to which two simulated iterations count as equally long."""


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
    """Return a plan that was made without overlap as one with it, in the order that its own times suggest.

    A plan without times (nothing was measured) keeps the order in which its groups become ready.
    """
    if plan.overlaps_forward:
        return plan
    left = list(range(len(plan.groups)))
    order: list[int] = []
    free_at = 0.0
    while left:
        ready = [index for index in left if plan.groups[index].ready_at <= free_at]
        index = ready[-1] if ready and plan.backward_end > 0 else left[0]
        group = plan.groups[index]
        free_at = max(free_at, group.ready_at) + group.end_at - group.start_at
        left.remove(index)
        order.append(index)
    return replace(plan, overlaps_forward=True, sending=tuple(order))


def waiting(plan: Plan) -> Plan:
    """Return a plan as one that waits for all its groups before an iteration ends."""
    return replace(plan, overlaps_forward=False, sending=(), waits=None) if plan.overlaps_forward else plan


def lowest_layers_first(ready: Sequence[int], sent: int) -> int:
    """Choose the ready group of the lowest layers, which the next forward pass needs first."""
    return max(ready)


def in_order(order: Sequence[int]) -> Choice:
    """Return the choice of groups in a given order, each waiting for its turn."""

    def choose(ready: Sequence[int], sent: int) -> int | None:
        return order[sent] if order[sent] in ready else None

    return choose


def _predict_overlapped(plan: Plan, timings: Timings, forward: ForwardTimes, channel: Channel) -> Plan:
    """Return the plan with the times that are to be expected, and with them its order, if it had none."""
    training = _SimulatedTraining(plan, timings, forward, channel)
    seconds = 0.0
    for iteration in range(_MAX_ITERATIONS):
        before, seconds = seconds, training.iterate()
        # The first iteration finds no groups on their way, so it is compared with none.
        if iteration > 1 and abs(seconds - before) <= _SAME_DURATION * seconds:
            break
    groups, backward_end = training.finish()
    return replace(
        plan,
        groups=groups,
        backward_end=backward_end,
        blocking=channel.blocking,
        sending=plan.sending or tuple(sorted(range(len(groups)), key=lambda index: groups[index].start_at)),
        waits=max(0.0, seconds - forward.total - backward_end),
    )


class _SimulatedTraining:
    """Iterations one after the other, in which the groups of each travel beside the next forward pass."""

    def __init__(self, plan: Plan, timings: Timings, forward: ForwardTimes, channel: Channel) -> None:
        self._plan = plan
        self._timings = timings
        self._forward = forward
        self._reads = _parameter_reads(plan, forward)
        self._update_times = _update_times(plan, forward)
        self._choose = in_order(plan.sending) if plan.sending else lowest_layers_first
        self._thread = ComputingThread(channel, GroupQueue((), self._choose))
        self._backward_start = 0.0
        self._backward_end = 0.0
        self._is_first = True  # nothing is on its way in the first forward pass

    def iterate(self) -> float:
        """Simulate an iteration, from the start of its forward pass to that of the next; return its seconds."""
        start = self._thread.now
        self._run_forward()
        self._thread.queue = GroupQueue(self._plan.groups, self._choose)
        self._backward_start = self._thread.now
        self._thread.run_backward(self._plan, self._timings.backward_times, self._timings.tail)
        self._backward_end = self._thread.now
        self._thread.pause(self._forward.rest + self._forward.agreement)
        self._is_first = False
        return self._thread.now - start

    def finish(self) -> tuple[tuple[Group, ...], float]:
        """Simulate the next forward pass; return the last iteration's groups, and the end of its backward pass.

        Both are in seconds since that backward pass began.
        """
        self._run_forward()
        groups = self._thread.queue.times(since=self._backward_start)
        return groups, self._backward_end - self._backward_start

    def _run_forward(self) -> None:
        """Compute the forward pass, and wait in it for the groups of the iteration before.

        All of them have come when the first forward pass ends (with iter_size, others follow without communication).
        """
        elapsed = 0.0
        for seconds, group in self._reads:
            self._thread.compute(seconds - elapsed)
            elapsed = seconds
            self._use(group)
        self._thread.compute(self._forward.first_forward - elapsed)
        for group in range(len(self._plan.groups)):
            self._use(group)
        self._thread.compute(self._forward.forward - max(self._forward.first_forward, elapsed))

    def _use(self, group: int) -> None:
        """Wait for a group, and make the updates of all that have come."""
        if self._is_first:
            return
        self._thread.wait_for(group)
        while self._thread.queue.updates_due:
            self._thread.compute(self._update_times[self._thread.queue.updates_due.pop()])


def _parameter_reads(plan: Plan, forward: ForwardTimes) -> list[tuple[float, int]]:
    """Return when the forward pass reads parameters, and of which group: (seconds, group), in the order of time."""
    owner = {
        layer: index
        for index, group in enumerate(plan.groups)
        for layer in range(group.first_segment, group.last_segment + 1)
    }
    reads = sorted((seconds, layer) for layer, seconds in enumerate(forward.needed))
    return [(seconds, owner[layer]) for seconds, layer in reads if layer in owner]


def _update_times(plan: Plan, forward: ForwardTimes) -> list[float]:
    """Return the seconds of each group's update: its share, by bytes, of the update of all weights."""
    total_bytes = max(1, sum(group.bytes for group in plan.groups))
    return [forward.update * group.bytes / total_bytes for group in plan.groups]
