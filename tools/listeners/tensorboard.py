"""A training run as TensorBoard events, behind `--tensorboard DIR`; written with tensorboardX, an extra.

Scalars: at each display `train/<output>`, `train/smoothed_loss`, `train/learning_rate`, and per iteration, averaged
since the last display, `speed/images_per_s`, `wait/data_ms`, `wait/comm_exposed_ms` and `wait/comm_hidden_ms`; at each
test `test_<net>/<output>`. Of trainers with replicas of their own also `speed/all_examples_per_s`, `sync/gap_<rank>`
and `sync/ms` since the last display, and as they are then `sync/distance_<rank>` and `sync/synchronizations`. A run
that is resumed into the same folder takes the place of what the earlier one wrote beyond that iteration. The file is
written where the figures arise: tensorboardX's own SummaryWriter leaves that to a thread, which dies when the disk is
full, and whose queue then holds up training.
"""

from __future__ import annotations

import importlib.util
import logging
import math
import os
import platform
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import singledispatchmethod
from pathlib import Path
from typing import Any

from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError, UsageError
from mgcaffe.solvers import events
from mgcaffe.solvers.events.testing import Tested

# A flush waits for the disk.
_FLUSH_EVERY_S = 10.0

_log = logging.getLogger(__name__)


class TensorBoardListener:
    """Writes the events of a run into a folder. Where that fails later on, it is said once, and the run goes on.

    Raises:
        UsageError: tensorboardX is not installed.
        EngineError: (exit code 73) the folder cannot be written.
    """

    def __init__(self, folder: str) -> None:
        if importlib.util.find_spec("tensorboardX") is None:
            raise UsageError(
                "--tensorboard needs tensorboardX, which is not installed", hint="pip install 'mgcaffe[tensorboard]'"
            )
        self.folder = folder
        self._writer: Any = None
        self._flushed_at = 0.0
        self._synchronized: events.Synchronized | None = None
        self._restart()

    def _restart(self) -> None:
        self._iterations = self._images = 0
        self._seconds = self._data_wait_s = self._hidden_s = self._exposed_s = 0.0

    @singledispatchmethod
    def on_event(self, event: events.Event) -> None:
        """Write an event; kinds without figures are passed over."""

    @on_event.register
    def _(self, event: events.Started) -> None:
        from tensorboardX.proto.event_pb2 import SessionLog
        from tensorboardX.record_writer import RecordWriter

        try:
            folder = Path(self.folder)
            folder.mkdir(parents=True, exist_ok=True)
            name = f"events.out.tfevents.{int(time.time())}.{platform.node()}.{os.getpid()}"
            self._writer = RecordWriter(str(folder / name))
            self._writer.write(_event(file_version="brain.Event:2"))
            if event.iteration:
                # What lies beyond this step in the folder's earlier files is hidden.
                start = SessionLog(status=SessionLog.START)
                self._writer.write(_event(step=event.iteration, session_log=start))
            self._writer.flush()
        except OSError as error:
            raise EngineError(
                f"cannot write TensorBoard events to {self.folder}: {error.strerror or error}",
                exit_code=EXIT_CANNOT_WRITE,
            ) from None

    @on_event.register
    def _(self, event: events.IterationDone) -> None:
        self._iterations += 1
        self._images += event.images
        self._seconds += event.seconds
        self._data_wait_s += event.data_wait_s
        self._hidden_s += event.comm_hidden_s
        self._exposed_s += event.comm_exposed_s

    @on_event.register
    def _(self, event: events.Displayed) -> None:
        self._write("train/smoothed_loss", event.loss, event.iteration)
        self._write_outputs("train", event.outputs, event.iteration)
        if self._iterations and self._seconds > 0:
            each = 1e3 / self._iterations
            self._write("speed/images_per_s", self._images / self._seconds, event.iteration)
            self._write("wait/data_ms", self._data_wait_s * each, event.iteration)
            self._write("wait/comm_exposed_ms", self._exposed_s * each, event.iteration)
            self._write("wait/comm_hidden_ms", self._hidden_s * each, event.iteration)
        if time.monotonic() - self._flushed_at > _FLUSH_EVERY_S:
            self._flush()
        self._restart()

    @on_event.register
    def _(self, event: events.Synchronized) -> None:
        figures, before = event.figures, self._synchronized
        self._synchronized = event
        self._write("speed/all_examples_per_s", event.examples_per_s, event.iteration)
        self._write("sync/synchronizations", figures.synchronizations, event.iteration)
        for rank, distance in enumerate(figures.distances):
            if math.isfinite(distance):
                self._write(f"sync/distance_{rank}", distance, event.iteration)
        rounds = figures.synchronizations - (before.figures.synchronizations if before is not None else 0)
        if before is None or not rounds:
            return
        for rank, (now, then) in enumerate(zip(figures.rounds, before.figures.rounds, strict=False)):
            if now > then:
                gap = (event.iterations[rank] - before.iterations[rank]) / (now - then)
                self._write(f"sync/gap_{rank}", gap, event.iteration)
        self._write("sync/ms", 1e3 * (figures.seconds - before.figures.seconds) / rounds, event.iteration)

    @on_event.register
    def _(self, event: events.LearningRate) -> None:
        self._write("train/learning_rate", event.rate, event.iteration)

    @on_event.register
    def _(self, event: Tested) -> None:
        self._write_outputs(f"test_{event.net}", event.scores, event.iteration)
        if event.loss is not None:
            self._write(f"test_{event.net}/test_loss", event.loss, event.iteration)
        self._flush()

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            try:
                self._writer.close()
            except OSError as error:
                self._give_up(error)

    def _write_outputs(self, group: str, values: Iterable[events.OutputValue], iteration: int) -> None:
        listed = list(values)
        names = [value.name for value in listed]
        for value in listed:
            # The numbers of an output are distinguished by their place among the outputs.
            name = value.name if names.count(value.name) == 1 else f"{value.name}_{value.index}"
            self._write(f"{group}/{name}", value.value, iteration)

    def _write(self, name: str, value: float, iteration: int) -> None:
        if self._writer is None:
            return
        from tensorboardX.summary import scalar

        try:
            self._writer.write(_event(step=iteration, summary=scalar(name, value)))
        except OSError as error:
            self._give_up(error)

    def _flush(self) -> None:
        if self._writer is not None:
            try:
                self._writer.flush()
                self._flushed_at = time.monotonic()
            except OSError as error:
                self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        writer, self._writer = self._writer, None
        with suppress(OSError):  # what is left in its buffer cannot be written either
            writer.close()
        _log.warning("cannot write TensorBoard events to %s any more: %s", self.folder, error.strerror or error)


def _event(**fields: Any) -> bytes:
    """Return a record of the file."""
    from tensorboardX.proto.event_pb2 import Event

    content: bytes = Event(wall_time=time.time(), **fields).SerializeToString()
    return content
