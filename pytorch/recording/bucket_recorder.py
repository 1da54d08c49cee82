"""A communication hook of DistributedDataParallel that reduces buckets as it does itself, and records them."""

# No `annotations` of `__future__` here: DistributedDataParallel compares those of a hook with the types themselves.

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from mgcaffe.comm import CommReport, Plan
from mgcaffe.comm.exchange.comm_report import GroupTimes
from mgcaffe.comm.planning.plan import Group
from mgcaffe.errors import UsageError
from mgcaffe.pytorch.autograd_graph import find_tensors
from mgcaffe.tools.timeline.device_clock import DeviceClock

SCHEDULE = "DistributedDataParallel"
"""What stands for the schedule in reports on its buckets."""

_MAX_PASSES = 100


@dataclass
class _Bucket:
    """A bucket of one backward pass; `ready` and `end` are marks of the clock."""

    names: tuple[str, ...]
    bytes: int
    ready: Any
    end: Any = None


@dataclass
class _Pass:
    """A backward pass; `began` is a mark of the clock, `layout` the number of the way in which buckets were made."""

    began: Any
    buckets: list[_Bucket] = field(default_factory=list)
    layout: int = -1


def record_buckets(ddp_module: DistributedDataParallel) -> "BucketRecorder":
    """Register the communication hook that records buckets, and return what has the records.

    The hook stays for as long as the module is wrapped: DistributedDataParallel takes one, and never gives it back.
    Gradients are multiplied by 1 / ranks and added up, which are DistributedDataParallel's own bits.

    Raises:
        UsageError: not a DistributedDataParallel, or one that has a communication hook.
    """
    return BucketRecorder(ddp_module)


class BucketRecorder:
    """Records the buckets of a DistributedDataParallel; `record_buckets` makes one.

    Args:
        model: the module.

    Attributes:
        clock: in whose seconds reports begin.
    """

    def __init__(self, model: DistributedDataParallel) -> None:
        if not isinstance(model, DistributedDataParallel):
            raise UsageError(
                f"buckets are those of DistributedDataParallel, and this is of type {type(model).__name__}",
                hint="RunRecorder records a MergedGradientParallel",
            )
        self._names = {id(each): name for name, each in model.module.named_parameters()}
        self._group = model.process_group
        self._factor = 1.0 / dist.get_world_size(self._group)
        self.clock = DeviceClock(next(model.module.parameters()).device)
        self.clock.start()
        self._lock = threading.Lock()
        self._began: Any = None
        self._current: _Pass | None = None
        self._ended: list[_Pass] = []
        self._layouts: list[tuple[tuple[str, ...], ...]] = []
        self._last_layout: int | None = None
        self._same = 0
        try:
            model.register_comm_hook(self, _reduce)
        except RuntimeError as error:
            raise UsageError(
                "buckets of this DistributedDataParallel cannot be recorded, since it has a communication hook"
                " already, or takes none",
                hint=str(error).splitlines()[0],
            ) from None
        model.register_forward_hook(self._after_forward)

    @property
    def segments(self) -> list[str]:
        """The names of the parameters of all buckets, for each way in which buckets were made."""
        return [name for layout in self._layouts for bucket in reversed(layout) for name in reversed(bucket)]

    @property
    def is_settled(self) -> bool:
        """Whether the last passes had the same buckets; alike on all ranks."""
        return self._same > 1

    @property
    def buckets(self) -> list[tuple[str, ...]]:
        """The parameters of each bucket in the last backward pass, in the order of their all-reduces."""
        return list(self._layouts[self._last_layout]) if self._last_layout is not None else []

    def take_reports(self) -> list[CommReport]:
        """Return the reports on the backward passes that have ended since this was called before.

        On a GPU the last ones may come with the next call: nothing is waited for.
        """
        with self._lock:
            passes = [each for each in self._ended if self._is_over(each)]
            self._ended = [each for each in self._ended if each not in passes]
        return [self._report(each) for each in passes]

    # -- called while a backward pass runs -------------------------------------------------------------------

    def _after_forward(self, _module: Any, _inputs: Any, output: Any) -> None:
        """Have the moment marked in which the backward pass reaches the module's output."""
        self._began = None
        if torch.is_grad_enabled():
            for tensor in find_tensors(output):
                tensor.register_hook(self._reach)

    def _reach(self, _gradient: torch.Tensor) -> None:
        if self._began is None:
            self._began = self.clock.mark()

    def reduce(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Start the all-reduce of a bucket, and record it."""
        ready = self.clock.mark()
        buffer = bucket.buffer()
        if self._current is None:
            self._current = _Pass(self._began if self._began is not None else ready)
        names = tuple(self._names.get(id(each), "?") for each in bucket.parameters())
        record = _Bucket(names, buffer.nbytes, ready)
        self._current.buckets.append(record)
        if bucket.is_last():
            self._end_pass(self._current)
            self._current = None
        buffer.mul_(self._factor)
        future = dist.all_reduce(buffer, group=self._group, async_op=True).get_future()
        ended: torch.futures.Future[torch.Tensor] = future.then(self._end(record))
        return ended

    def _end(self, record: _Bucket) -> Callable[[torch.futures.Future[list[torch.Tensor]]], torch.Tensor]:
        def ended(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
            record.end = self.clock.mark()
            return future.value()[0]

        return ended

    # -- the records -----------------------------------------------------------------------------------------

    def _is_over(self, each: _Pass) -> bool:
        if any(bucket.end is None for bucket in each.buckets):
            return False
        return not self.clock.on_gpu or all(bucket.end.query() for bucket in each.buckets)

    def _end_pass(self, each: _Pass) -> None:
        """Keep a pass whose buckets have all been handed over, in whichever way they were made."""
        layout = tuple(bucket.names for bucket in each.buckets)
        if layout not in self._layouts:
            self._layouts.append(layout)
        each.layout = self._layouts.index(layout)
        self._same = self._same + 1 if each.layout == self._last_layout else 1
        self._last_layout = each.layout
        with self._lock:
            self._ended = [*self._ended, each][-_MAX_PASSES:]

    def _report(self, each: _Pass) -> CommReport:
        base = sum(len(bucket) for earlier in self._layouts[: each.layout] for bucket in earlier)
        groups: list[Group] = []
        times: list[GroupTimes] = []
        last = base + sum(len(bucket.names) for bucket in each.buckets) - 1
        free = 0.0
        for number, bucket in enumerate(each.buckets):
            first = last - len(bucket.names) + 1
            groups.append(Group(first, last, first, len(bucket.names), bucket.bytes, 0.0, 0.0, 0.0))
            ready, end = (self._seconds(each.began, mark) for mark in (bucket.ready, bucket.end))
            # Buckets are reduced one after the other, as far as can be seen from outside.
            start = min(max(ready, free), end)
            times.append(GroupTimes(bucket.bytes, ready, start, end, number))
            free, last = max(free, end), first - 1
        backward_end = times[-1].ready
        total = sum(group.end - group.start for group in times)
        exposed = max(0.0, free - backward_end)
        waits = [(backward_end, free, len(times) - 1)] if exposed > 0 else []
        plan = Plan(SCHEDULE, len(self.segments), tuple(groups), 0.0)
        began = self.clock.seconds(each.began)
        return CommReport(total, exposed, max(0.0, total - exposed), times, began, backward_end, waits, plan)

    def _seconds(self, began: Any, mark: Any) -> float:
        if not self.clock.on_gpu:
            return float(mark - began)
        return float(began.elapsed_time(mark)) / 1e3


def _reduce(recorder: BucketRecorder, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    return recorder.reduce(bucket)
