"""One iteration of the exchange: which gradients are ready, which groups were sent, what was waited for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from mgcaffe.comm.exchange.comm_report import CommReport, GroupTimes, OnGroup
from mgcaffe.comm.exchange.reducer import Reducer, Reduction
from mgcaffe.comm.planning.plan import Plan, Segment
from mgcaffe.errors import CommError


class Iteration:
    """The groups of a plan on their way through the reducer; made when an iteration begins.

    Args:
        plan: the merged groups.
        segments: the layers' places in the gradient buffer.
        reducer: takes the groups.
        clock: seconds.
        is_held: whether no group is sent before the backward pass has ended.

    Attributes:
        began: the clock when the iteration began.
        is_deferred: whether the rest is left to `wait_for_segment` and `complete`.
    """

    def __init__(
        self, plan: Plan, segments: Sequence[Segment], reducer: Reducer, clock: Callable[[], float], *, is_held: bool
    ) -> None:
        self._plan = plan
        self._segments = segments
        self._reducer = reducer
        self._clock = clock
        self._is_held = is_held
        self.is_deferred = False
        self._expected = len(segments) - 1
        self._completed_by = {group.first_segment: number for number, group in enumerate(plan.groups)}
        self._ready_at: dict[int, float] = {}
        self._unsent = deque(plan.order)
        self._sent: list[Reduction] = []
        self._untaken: list[Reduction] = []
        self._on_group: OnGroup | None = None
        self._waits: list[tuple[float, float, int]] = []
        self._exposed = 0.0
        self._backward_end: float | None = None
        self.began = clock()

    def gradients_ready(self, segment: int, count: int = 1) -> None:
        """Take note that gradients are complete, and send the groups that this completes, if any.

        Args:
            segment: the lowest of them.
            count: how many segments, from this one upwards.

        Raises:
            CommError: the segments are not the next ones downwards.
        """
        highest = segment + count - 1
        if highest != self._expected or segment < 0:
            name = name_segment(self._segments, highest)
            raise CommError(f"the gradient of {name} came out of order; {self.describe_expected()}")
        self._expected = segment - 1
        for each in range(highest, segment - 1, -1):
            group = self._completed_by.get(each)
            if group is not None:
                self._ready_at[group] = self._clock()
                if not self._is_held:
                    self._send()

    def describe_expected(self) -> str:
        """Return which gradient comes next, for an error message."""
        if self._expected < 0:
            return "all layers have come already"
        name = name_segment(self._segments, self._expected)
        return f"next is {name}, number {self._expected} of {len(self._segments)}"

    def backward_done(self) -> bool:
        """Take note that the backward pass has ended; return whether groups are still being reduced."""
        self._backward_end = self._clock()
        self._send()
        return bool(self._sent) and not self._sent[-1].is_done

    def end_backward(self, on_group: OnGroup | None) -> None:
        """Begin to wait: from now on `on_group` gets each group that is waited for.

        Raises:
            CommError: a gradient has not come, or this was called before.
            Exception: what went wrong on the reducer's thread.
        """
        if self._expected >= 0 or self.is_deferred:
            raise CommError(f"gradients were waited for too early; {self.describe_expected()}")
        now = self._clock()
        if self._backward_end is None:
            self._backward_end = now
        self._send()
        # What the computing thread did since (the ranks agreeing on a number) was waiting as well.
        if self._sent:
            last = self._sent[-1]
            if last.is_done:
                last.wait()
                now = last.end
            self._exposed = max(0.0, now - self._backward_end)
        self._on_group = on_group

    def wait_for_segment(self, segment: int) -> None:
        """Wait for the group of a segment and those sent before it, unless that was done already.

        Raises:
            Exception: what went wrong on the reducer's thread.
        """
        for place, handle in enumerate(self._untaken):
            group = self._plan.groups[handle.group]
            if group.first_segment <= segment <= group.last_segment:
                self._take(self._untaken[: place + 1])
                return

    def complete(self) -> CommReport:
        """Wait for all groups and return the report.

        Raises:
            Exception: what went wrong on the reducer's thread.
        """
        assert self._backward_end is not None
        self._take(self._untaken)
        total = sum(handle.end - handle.start for handle in self._sent)
        return CommReport(
            total,
            self._exposed,
            max(0.0, total - self._exposed),
            [self._times_of(handle) for handle in self._sent],
            self.began,
            self._backward_end - self.began,
            self._waits,
            self._plan,
            self._reducer.is_one_by_one,
        )

    def _send(self) -> None:
        """Submit the complete groups whose turn it is."""
        while self._unsent and self._unsent[0] in self._ready_at:
            number = self._unsent.popleft()
            group = self._plan.groups[number]
            handle = self._reducer.submit(number, group.offset, group.count)
            self._sent.append(handle)
            self._untaken.append(handle)

    def _take(self, handles: Sequence[Reduction]) -> None:
        """Wait for the next groups in the order of sending, and give each to `on_group` as it comes."""
        self._untaken = self._untaken[len(handles) :]
        if self._on_group is None:
            # All at once: each time that the reducer's thread wakes this one costs it time.
            for handle in handles[-1:]:
                self._wait(handle)
            return
        for handle in handles:
            self._wait(handle)
            group = self._plan.groups[handle.group]
            self._on_group(group.offset, group.count)

    def _wait(self, handle: Reduction) -> None:
        before = self._clock()
        was_done = handle.is_done
        handle.wait()
        if not was_done:
            now = self._clock()
            self._exposed += now - before
            self._waits.append((before - self.began, now - self.began, handle.group))

    def _times_of(self, handle: Reduction) -> GroupTimes:
        return GroupTimes(
            self._plan.groups[handle.group].count * self._reducer.element_bytes,
            self._ready_at[handle.group] - self.began,
            handle.start - self.began,
            handle.end - self.began,
            handle.group,
        )


def name_segment(segments: Sequence[Segment], segment: int) -> str:
    """Return a segment's name for an error message."""
    return f"layer '{segments[segment].name}'" if 0 <= segment < len(segments) else f"layer {segment}"
