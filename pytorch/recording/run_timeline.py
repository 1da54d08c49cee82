"""The timeline of some iterations of a training loop, of all ranks in one file (`tools/timeline/file.py`)."""

from __future__ import annotations

import logging

from mgcaffe.comm import CommReport, Communicator
from mgcaffe.comm.transport.clock import measure_offsets
from mgcaffe.pytorch.recording.communication import Communication
from mgcaffe.pytorch.recording.module_spans import ModuleSpans
from mgcaffe.tools.timeline.file import IterationRecord, RankRecord, Span, write_timeline

ITERATIONS = 8
WARM_UP = 3

_log = logging.getLogger("mgcaffe.pytorch")


class RunTimeline:
    """Records iterations, and writes them when the last of them is over.

    Args:
        path: the file, written by rank 0.
        name: of the module.
        communicator: the ranks, for this alone.
        spans: what the module computes.
        communication: what it communicates.
        iterations: (first, end), from the first up to, not including, the end; None: `ITERATIONS`, from some iterations
            after the groups are settled.
    """

    def __init__(
        self,
        path: str,
        name: str,
        communicator: Communicator,
        spans: ModuleSpans,
        communication: Communication,
        iterations: tuple[int, int] | None,
    ) -> None:
        self._path = path
        self._name = name
        self._communicator = communicator
        self._spans = spans
        self._communication = communication
        self._range = iterations
        self._warm_up = WARM_UP
        self._records: list[IterationRecord] = []
        self._is_recording = False
        self.is_written = False

    @property
    def is_over(self) -> bool:
        """Whether all iterations were recorded and are not written yet."""
        return bool(self._records) and not self._is_recording and not self.is_written

    def begin(self, iteration: int, now: float) -> None:
        """Begin an iteration, at a time of `time.perf_counter`."""
        if self.is_written or self.is_over:
            return
        if self._range is None and self._communication.is_settled:
            self._warm_up -= 1
            if self._warm_up < 0:
                self._range = iteration, iteration + ITERATIONS
        if self._range is None or not self._range[0] <= iteration < self._range[1]:
            return
        if not self._is_recording:
            self._is_recording = True
            self._spans.start()
        self._records.append(IterationRecord(iteration, now))

    def waited(self, start: float, end: float) -> None:
        """Record the time before the first forward pass of an iteration."""
        if self._is_recording:
            self._records[-1].spans.append(Span("before the forward pass", "data", start, end))

    def end(self, iteration: int, now: float, reports: list[CommReport]) -> None:
        """End an iteration."""
        if not self._is_recording:
            return
        record = self._records[-1]
        assert record.began is not None and self._range is not None
        record.spans.append(Span(f"iteration {iteration}", "iteration", record.began, now))
        record.spans += self._spans.take()
        record.is_complete = True
        for report in reports:  # those that began before belong to the iteration before
            owner = next((each for each in reversed(self._records) if (each.began or 0.0) <= report.began), None)
            if owner is not None and report.plan is not None:
                owner.reports.append(report)
        if iteration + 1 >= self._range[1]:
            self.stop()

    def stop(self) -> None:
        """Record no more."""
        if self._is_recording:
            self._is_recording = False
            self._spans.stop()
            self._records = [each for each in self._records if each.is_complete]

    def write(self) -> None:
        """Write the ranks' records into one file; collective, once.

        Raises:
            EngineError: with exit code 73, on rank 0.
        """
        self.is_written = True
        if not min(self._communicator.allgather(len(self._records))):
            if self._communicator.rank == 0:
                _log.warning(
                    "no timeline was written to %s: the loop ended before the iterations to record", self._path
                )
            return
        offsets = measure_offsets(self._communicator)
        own = RankRecord(self._communicator.rank, self._communicator.host, self._records)
        records = self._communicator.gather(own)
        numbers = [each.number for each in self._records]
        self._records = []
        if records is not None:
            write_timeline(self._path, self._name, self._communication.segments, records, offsets)
            _log.info("timeline of iterations %d to %d written to %s", numbers[0], numbers[-1], self._path)
