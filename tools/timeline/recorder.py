"""Records when everything happened in some iterations of a training run, on all ranks, for one timeline.

    timeline = Timeline(solver, communicator, "timeline.json", iterations=(20, 28))

It hangs itself on the net's hooks while it records, and listens to the solver; nothing is recorded, and nothing
costs time, outside its iterations. When they are over the ranks measure how far their clocks are apart, and rank 0
writes the file (`file.py`). On a GPU the layers' times are those of the GPU.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import torch

from mgcaffe.comm import CommReport, Communicator
from mgcaffe.comm.transport.clock import measure_offsets
from mgcaffe.solvers import events
from mgcaffe.solvers.solver import Solver
from mgcaffe.tools.listeners.glog import log_line
from mgcaffe.tools.timeline.file import RankRecord, Span, write_timeline

DEFAULT_ITERATIONS = 8
_WARM_UP = 3
MOST_SPANS = 500_000


@dataclass
class _Open:
    """What has begun and not ended yet."""

    forward: Any = None
    backward: Any = None
    data_wait: float = 0.0
    iteration: float | None = None
    test: float = 0.0
    snapshot: float = 0.0
    raw: list[tuple[str, str, Any, Any]] = field(default_factory=list)


class Timeline:
    """One run's timeline; made alike on every rank, before training.

    Args:
        solver: whose run is recorded.
        communicator: its ranks; the timeline uses a duplicate.
        path: the file, written by rank 0.
        iterations: (first, end): recorded are those from first up to, not including, end. None: as many as
            `DEFAULT_ITERATIONS`, from a few iterations after the plan is found.

    """

    def __init__(
        self, solver: Solver, communicator: Communicator, path: str, iterations: tuple[int, int] | None = None
    ) -> None:
        self._solver = solver
        self._net = solver.net
        self._communicator = communicator.duplicate()
        self._path = path
        self._first: int | None = None
        self._end: int | None = None
        if iterations is not None:
            self._first, self._end = iterations
        self._warm_up = _WARM_UP
        self._is_recording = False
        self._is_written = False
        self._spans: list[Span] = []
        self._reports: list[tuple[int, CommReport]] = []
        self._recorded: list[int] = []
        self._begun: list[tuple[int, float]] = []
        self._after = float("inf")
        self._iteration = solver.iteration
        self._open = _Open()
        self._on_gpu = self._net.device.type == "cuda"
        self._base: tuple[float, Any] = (0.0, None)
        self._names = {step.index: self._name(step.members) for step in self._net.steps}
        self._data_layers = {
            index: layer for index, layer in enumerate(self._net.layers) if layer in self._net.data_layers
        }
        solver.listeners.append(self)
        solver.observe(self)

    # -- what the solver tells ---------------------------------------------------------------------------

    def on_event(self, event: events.Event) -> None:
        """Follows the run."""
        now = time.perf_counter()
        if isinstance(event, events.Started):
            self._next_iteration(event.iteration)
        elif isinstance(event, events.IterationDone):
            self._iteration_done(event, now)
        elif isinstance(event, events.Testing):
            self._open.test = now
        elif isinstance(event, events.Tested):
            self._add(f"test net #{event.net}", "test", self._open.test, now)
        elif isinstance(event, events.SnapshotWriting) and event.kind == "weights":
            self._open.snapshot = now
        elif isinstance(event, events.SnapshotWritten):
            self._add(f"snapshot {event.iteration}", "snapshot", self._open.snapshot, now)
        elif isinstance(event, events.Finished):
            self._finish()

    def communicated(self, comm: CommReport) -> None:
        """Keeps the report of an exchange of a recorded iteration."""
        if self._is_written or not self._begun:
            return
        if comm.plan is None:  # one rank: its update follows at once
            if not self._is_recording:
                self._after = min(self._after, time.perf_counter())
            return
        iteration = next((n for n, began in reversed(self._begun) if began <= comm.began), None)
        if iteration not in self._recorded and iteration != self._iteration:
            return
        if self._is_recording or iteration in self._recorded:
            # Communication that overlaps the next forward pass is reported an iteration later.
            self._reports.append((iteration, comm))
        else:
            self._after = comm.began

    def agreed(self, start: float, end: float) -> None:
        """Keeps the time in which the ranks agreed on the loss."""
        self._add("agree on the loss", "agree", start, end)

    def updated(self, start: float, end: float, offset: int, count: int) -> None:
        """Keeps an update."""
        self._add("update", "update", start, end, offset=offset, count=count)

    # -- the iterations ----------------------------------------------------------------------------------

    def _next_iteration(self, iteration: int) -> None:
        """Begins to record, or ends it, before an iteration."""
        self._iteration = iteration
        if self._is_written:
            return
        if self._first is None and not self._solver.is_planning:
            self._warm_up -= 1
            if self._warm_up < 0:
                self._first, self._end = iteration, iteration + DEFAULT_ITERATIONS
        if self._first is None or self._end is None:
            return
        if not self._is_recording and self._first <= iteration < self._end:
            self._start()
        elif self._is_recording and iteration >= self._end:
            self._stop()

    def _start(self) -> None:
        self._is_recording = True
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            torch.cuda.synchronize()
            self._base = (time.perf_counter(), event)
        self._net.before_forward.append(self._forward_begins)
        self._net.after_forward.append(self._forward_ends)
        self._net.before_backward.append(self._backward_begins)
        self._net.after_backward.append(self._backward_ends)

    def _stop(self) -> None:
        self._is_recording = False
        self._begun.append((self._iteration, time.perf_counter()))
        self._net.before_forward.remove(self._forward_begins)
        self._net.after_forward.remove(self._forward_ends)
        self._net.before_backward.remove(self._backward_begins)
        self._net.after_backward.remove(self._backward_ends)

    def _iteration_done(self, event: events.IterationDone, now: float) -> None:
        if self._is_recording and self._open.iteration is not None:
            self._add(f"iteration {event.iteration}", "iteration", self._open.iteration, now)
            self._recorded.append(event.iteration)
            self._close_layers()
            if len(self._spans) > MOST_SPANS:
                self._end = event.iteration + 1
        self._open.iteration = None
        waited = self._end is not None and event.iteration >= self._end
        self._next_iteration(event.iteration + 1)
        # One iteration later, communication that overlaps a forward pass has been reported as well.
        if waited and not self._is_recording:
            self._finish()

    def _finish(self) -> None:
        """Puts the ranks' records into one file; collective, once."""
        if self._is_written:
            return
        self._is_written = True
        if self._is_recording:
            self._stop()
        counts = self._communicator.allgather(len(self._recorded))
        if not min(counts):
            log_line(
                f"No timeline was written to {self._path}: the run ended before the iterations to record"
                " (--timeline_iterations)"
            )
            return
        offsets = measure_offsets(self._communicator)
        segments = [name for name, _, _, _ in self._net.arena.segments()]
        # An update that began after the next backward pass is one of the iteration after the last.
        spans = [span for span in self._spans if span.start < self._after]
        record = RankRecord(self._communicator.rank, self._communicator.host, spans, self._reports)
        records = self._communicator.gather(record)
        self._spans, self._reports = [], []
        if records is not None:
            write_timeline(self._path, self._net.name, segments, records, offsets, self._recorded)
            log_line(f"Timeline of iterations {self._recorded[0]} to {self._recorded[-1]} written to {self._path}")

    # -- the net's hooks ---------------------------------------------------------------------------------

    def _forward_begins(self, index: int) -> None:
        now = time.perf_counter()
        if self._open.iteration is None:
            self._open.iteration = now
            self._begun.append((self._iteration, now))
        if index in self._data_layers:
            self._open.data_wait = self._data_layers[index].wait_s
        self._open.forward = self._mark()

    def _forward_ends(self, index: int) -> None:
        began = self._open.forward
        self._open.raw.append((self._names[index], "forward", began, self._mark()))
        if index in self._data_layers:
            waited = self._data_layers[index].wait_s - self._open.data_wait
            if waited > 0 and not self._on_gpu:
                self._add("wait for data", "data", began, began + waited)

    def _backward_begins(self, index: int) -> None:
        self._open.backward = self._mark()

    def _backward_ends(self, index: int) -> None:
        self._open.raw.append((self._names[index], "backward", self._open.backward, self._mark()))

    def _mark(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _close_layers(self) -> None:
        """Turns the marks of an iteration's layers into spans."""
        if self._on_gpu:
            torch.cuda.synchronize()
        for name, category, begin, end in self._open.raw:
            self._add(name, category, self._seconds(begin), self._seconds(end))
        self._open.raw = []

    def _seconds(self, mark: Any) -> float:
        if not self._on_gpu:
            return float(mark)
        began, event = self._base
        return began + float(event.elapsed_time(mark)) / 1e3

    def _add(self, name: str, category: str, start: float, end: float, **facts: Any) -> None:
        # A test belongs to the iterations around it; an update may come in the one after the last.
        last = self._end is not None and self._iteration == self._end and category == "update"
        if self._is_recording or (last and self._recorded):
            self._spans.append(Span(name, category, start, end, self._iteration, facts))

    def _name(self, members: list[int]) -> str:
        return " + ".join(self._net.layers[index].name for index in members)
