"""Records when everything happened in some iterations of a training run, on all ranks, for one timeline.

    timeline = Timeline(solver, communicator, "timeline.json", iterations=(20, 28))

It registers hooks of the net while it records, and listens to the solver; outside its iterations nothing is recorded,
and nothing costs time. There is one `IterationRecord` for each iteration. When they are over the ranks measure how far
their clocks are apart, and rank 0 writes the file (`file.py`). On a GPU the layers' times are those of the GPU.

Trainers with replicas of their own reach those iterations at different times, or never, so they write at the end of the
run. The rounds that bring replicas together are recorded meanwhile, in the background by the thread that runs them.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

from mgcaffe.comm import CommReport, Communicator
from mgcaffe.comm.replicas.figures import SyncFigures
from mgcaffe.comm.transport.clock import measure_offsets
from mgcaffe.solvers import events
from mgcaffe.solvers.events.snapshots import SnapshotWriting, SnapshotWritten
from mgcaffe.solvers.events.testing import Tested, Testing
from mgcaffe.solvers.solver import Solver
from mgcaffe.tools.listeners.glog import log_line
from mgcaffe.tools.timeline.device_clock import DeviceClock
from mgcaffe.tools.timeline.file import IterationRecord, RankRecord, Span, write_timeline

DEFAULT_ITERATIONS = 8
_WARM_UP = 3
MAX_SPANS = 500_000
"""Recording ends after the iteration in which there are more."""


@dataclass
class _Begun:
    """What has begun last of each kind, until it ends: marks of layers, and seconds."""

    forward: Any = None
    backward: Any = None
    data_wait: float = 0.0
    test: float = 0.0
    snapshot: float = 0.0


class Timeline:
    """One run's timeline; made with the same arguments on every rank, before training.

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
        self._iteration = solver.iteration
        self._records: dict[int, IterationRecord] = {}
        self._rounds: list[Span] = []
        self._iterations_synchronized = 0  # as of the latest round
        self._span_count = 0
        self._next_backward_at = float("inf")  # of the iteration after the last one recorded
        self._begun = _Begun()
        self._layer_marks: list[tuple[str, str, Any, Any]] = []
        self._clock = DeviceClock(self._net.device)
        self._names = {step.index: self._name(step.members) for step in self._net.steps}
        self._data_layers = {
            index: layer for index, layer in enumerate(self._net.layers) if layer in self._net.data_layers
        }
        solver.listeners.append(self)
        solver.observe(self)

    # -- the solver's events -----------------------------------------------------------------------------

    def on_event(self, event: events.Event) -> None:
        """Record what an event begins or ends."""
        now = time.perf_counter()
        if isinstance(event, events.Started):
            self._begin_iteration(event.iteration)
        elif isinstance(event, events.IterationDone):
            self._end_iteration(event.iteration, now)
        elif isinstance(event, Testing):
            self._begun.test = now
        elif isinstance(event, Tested):
            self._add(f"test net #{event.net}", "test", self._begun.test, now)
        elif isinstance(event, SnapshotWriting) and event.kind == "weights":
            self._begun.snapshot = now
        elif isinstance(event, SnapshotWritten):
            self._add(f"snapshot {event.iteration}", "snapshot", self._begun.snapshot, now)
        elif isinstance(event, events.Finished):
            self._finish()

    def communicated(self, comm: CommReport) -> None:
        """Record the communication of an iteration."""
        if self._is_written or not self._records:
            return
        if comm.plan is None:  # one rank: its update follows at once
            if not self._is_recording:
                self._next_backward_at = min(self._next_backward_at, time.perf_counter())
            return
        # Communication that overlaps the next forward pass is reported an iteration later.
        record = self._record_of(comm)
        if record is None:
            return
        if record.is_complete or (self._is_recording and record.number == self._iteration):
            record.reports.append(comm)
        elif record.number == self._iteration:
            self._next_backward_at = comm.began

    def agreed(self, start: float, end: float) -> None:
        """Record the time in which the ranks agreed on the loss."""
        self._add("agree on the loss", "agree", start, end)

    def updated(self, start: float, end: float, offset: int, count: int) -> None:
        """Record an update of weights."""
        self._add("update", "update", start, end, offset=offset, count=count)

    def synchronized(self, start: float, end: float, figures: SyncFigures) -> None:
        """Record a round, on whichever thread has run it."""
        gap, self._iterations_synchronized = (
            figures.iterations - self._iterations_synchronized,
            figures.iterations,
        )
        if self._is_recording:
            facts: dict[str, Any] = {"round": figures.synchronizations, "gap": gap}
            if math.isfinite(figures.distance):
                facts["distance"] = figures.distance
            self._rounds.append(Span("synchronization", "synchronization", start, end, facts))

    # -- the iterations ----------------------------------------------------------------------------------

    def _begin_iteration(self, iteration: int) -> None:
        """Begin to record, or end it, before an iteration."""
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

    def _end_iteration(self, iteration: int, now: float) -> None:
        record = self._records.get(self._iteration)
        if self._is_recording and record is not None and record.began is not None:
            self._add(f"iteration {iteration}", "iteration", record.began, now)
            self._add_layers()
            record.is_complete = True
            if self._span_count > MAX_SPANS:
                self._end = iteration + 1
        was_last_seen = self._end is not None and iteration >= self._end
        self._begin_iteration(iteration + 1)
        # One iteration after the last, communication that overlaps a forward pass has been reported as well.
        if was_last_seen and not self._is_recording and self._solver.ranks is self._solver.world:
            self._finish()

    def _start(self) -> None:
        self._is_recording = True
        self._clock.start()
        self._net.before_forward.append(self._forward_begins)
        self._net.after_forward.append(self._forward_ends)
        self._net.before_backward.append(self._backward_begins)
        self._net.after_backward.append(self._backward_ends)

    def _stop(self) -> None:
        self._is_recording = False
        # What is communicated from now on is not the last recorded iteration's.
        self._record().began = time.perf_counter()
        self._net.before_forward.remove(self._forward_begins)
        self._net.after_forward.remove(self._forward_ends)
        self._net.before_backward.remove(self._backward_begins)
        self._net.after_backward.remove(self._backward_ends)

    def _finish(self) -> None:
        """Write the ranks' records into one file; collective, once."""
        if self._is_written:
            return
        self._is_written = True
        if self._is_recording:
            self._stop()
        recorded = self._complete()
        counts = self._communicator.allgather(len(recorded))
        if not min(counts):
            log_line(
                f"No timeline was written to {self._path}: the run ended before the iterations to record"
                " (--timeline_iterations)"
            )
            return
        offsets = measure_offsets(self._communicator)
        segments = [name for name, _, _, _ in self._net.arena.segments()]
        # An update that began after the next backward pass belongs to the iteration after the last.
        iterations = [
            replace(record, spans=[span for span in record.spans if span.start < self._next_backward_at])
            for record in self._records.values()
        ]
        own = RankRecord(self._communicator.rank, self._communicator.host, iterations, self._rounds)
        records = self._communicator.gather(own)
        self._records = {}
        if records is not None:
            write_timeline(self._path, self._net.name, segments, records, offsets)
            log_line(f"Timeline of iterations {recorded[0]} to {recorded[-1]} written to {self._path}")

    # -- the records -------------------------------------------------------------------------------------

    def _record(self) -> IterationRecord:
        """Return the current iteration's record."""
        return self._records.setdefault(self._iteration, IterationRecord(self._iteration))

    def _record_of(self, comm: CommReport) -> IterationRecord | None:
        """Return the record of the iteration whose backward pass began with this communication."""
        for record in reversed(self._records.values()):
            if record.began is not None and record.began <= comm.began:
                return record
        return None

    def _complete(self) -> list[int]:
        """Return the iterations that were recorded from beginning to end."""
        return [record.number for record in self._records.values() if record.is_complete]

    def _add(self, name: str, category: str, start: float, end: float, **facts: Any) -> None:
        """Record a span, of the current iteration."""
        # A test belongs to the iterations around it; an update may come in the one after the last.
        is_late = category == "update" and self._iteration == self._end and self._iteration in self._records
        if self._is_recording or is_late:
            self._record().spans.append(Span(name, category, start, end, facts))
            self._span_count += 1

    def _add_layers(self) -> None:
        """Turn the marks of an iteration's layers into spans."""
        self._clock.synchronize()
        for name, category, begin, end in self._layer_marks:
            self._add(name, category, self._clock.seconds(begin), self._clock.seconds(end))
        self._layer_marks = []

    # -- the net's hooks ---------------------------------------------------------------------------------

    def _forward_begins(self, index: int) -> None:
        now = time.perf_counter()
        record = self._record()
        if record.began is None:
            record.began = now
        if index in self._data_layers:
            self._begun.data_wait = self._data_layers[index].wait_s
        self._begun.forward = self._clock.mark()

    def _forward_ends(self, index: int) -> None:
        began = self._begun.forward
        self._layer_marks.append((self._names[index], "forward", began, self._clock.mark()))
        if index in self._data_layers:
            waited = self._data_layers[index].wait_s - self._begun.data_wait
            if waited > 0 and not self._clock.on_gpu:
                self._add("wait for data", "data", began, began + waited)

    def _backward_begins(self, index: int) -> None:
        self._begun.backward = self._clock.mark()

    def _backward_ends(self, index: int) -> None:
        self._layer_marks.append((self._names[index], "backward", self._begun.backward, self._clock.mark()))

    def _name(self, members: list[int]) -> str:
        return " + ".join(self._net.layers[index].name for index in members)
