"""Turns a training run's events into Caffe's log lines, word for word.

The places in front of the lines are those of Caffe 1.0. What Caffe has no line for (the plan, the
communication figures, where the snapshot lies) is added in lines that no parser of Caffe's logs takes for
others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import singledispatchmethod

from mgcaffe.engine.data.stages import sum_stages
from mgcaffe.solvers import events
from mgcaffe.solvers.events.snapshots import BestFound, NothingToRestore, Restored, SnapshotWriting, WeightsCopied
from mgcaffe.solvers.events.statistics import BlobStatistics, NetStatistics
from mgcaffe.solvers.events.testing import Tested, Testing
from mgcaffe.tools.listeners.communication_lines import (
    closing_lines,
    comm_line,
    data_line,
    look_up_line,
    plan_lines,
    sync_text,
    trainers_text,
)
from mgcaffe.tools.listeners.glog import log_line, number

_STEPS_OF_RATES = ("MultiStep Status: ", "Plateau Status: ")


class CaffeLogListener:
    """Logs what happens, on the one rank that speaks.

    Args:
        display: the solver's `display`, which stands in the speed of an iteration's line.
        ranks: how many ranks train in step; with more than one the communication is shown.
    """

    def __init__(self, display: int, ranks: int) -> None:
        self._display = display
        self._ranks = ranks
        self._started_at = 0
        self._displayed_at = 0
        self._data_wait_s = self._seconds = 0.0
        self._data_work_s: Mapping[str, float] = {}

    @singledispatchmethod
    def on_event(self, event: events.Event) -> None:
        """Log an event; kinds that Caffe has no line for are passed over."""

    @on_event.register
    def _(self, event: events.Started) -> None:
        self._started_at = event.iteration
        self._displayed_at = event.iteration - 1
        log_line("Solver scaffolding done.", "solver.cpp:57")
        log_line("Starting Optimization", "caffe.cpp:248")
        log_line(f"Solving {event.net}", "solver.cpp:272")
        log_line(f"Learning Rate Policy: {event.policy}", "solver.cpp:273")

    @on_event.register
    def _(self, event: events.Displayed) -> None:
        speed = ""
        if event.iterations_per_second is not None:
            rate, seconds = number(event.iterations_per_second), number(event.seconds or 0.0)
            speed = f" ({rate} iter/s, {seconds}s/{self._display} iters)"
        place = "solver.cpp:218" if speed else "solver.cpp:310"
        log_line(f"Iteration {event.iteration}{speed}, loss = {number(event.loss)}", place)
        if speed:
            for value in event.outputs:
                log_line(f"    Train net output {output_text(value)}", "solver.cpp:237")
            if self._ranks > 1:
                iterations = event.iteration - self._displayed_at
                log_line(comm_line(event.comm_hidden_s, event.comm_exposed_s, iterations))
            if event.iteration > self._started_at:
                iterations = event.iteration - self._displayed_at
                log_line(data_line(self._data_wait_s, self._seconds, iterations, self._data_work_s))
            self._data_wait_s = self._seconds = 0.0
            self._data_work_s = {}
            self._displayed_at = event.iteration

    @on_event.register
    def _(self, event: events.Synchronized) -> None:
        log_line(f"Replicas: {sync_text(event.figures)}; {trainers_text(event)}")

    @on_event.register
    def _(self, event: events.TablesLookedUp) -> None:
        log_line(look_up_line(event.figures))

    @on_event.register
    def _(self, event: events.IterationDone) -> None:
        self._data_wait_s += event.data_wait_s
        self._seconds += event.seconds
        self._data_work_s = sum_stages(self._data_work_s, event.data_work_s)

    @on_event.register
    def _(self, event: events.LearningRate) -> None:
        log_line(f"Iteration {event.iteration}, lr = {number(event.rate)}", "sgd_solver.cpp:105")

    @on_event.register
    def _(self, event: Testing) -> None:
        log_line(f"Iteration {event.iteration}, Testing net (#{event.net})", "solver.cpp:330")

    @on_event.register
    def _(self, event: Tested) -> None:
        if event.loss is not None:
            log_line(f"Test loss: {number(event.loss)}", "solver.cpp:387")
        for value in event.scores:
            log_line(f"    Test net output {output_text(value)}", "solver.cpp:397")

    @on_event.register
    def _(self, event: SnapshotWriting) -> None:
        form = "HDF5" if event.path.endswith(".h5") else "binary proto"
        if event.kind == "weights":
            log_line(f"Snapshotting to {form} file {event.path}", "solver.cpp:447")
        else:
            log_line(f"Snapshotting solver state to {form} file {event.path}", "sgd_solver.cpp:273")

    @on_event.register
    def _(self, event: BestFound) -> None:
        log_line(f"Best {event.output} so far: {number(event.value)} (iteration {event.iteration}, {event.state})")

    @on_event.register
    def _(self, event: NothingToRestore) -> None:
        log_line(f"No snapshot begins with {event.prefix}: starting anew")

    @on_event.register
    def _(self, event: Restored) -> None:
        log_line(f"Resuming from {event.state}", "caffe.cpp:241")

    @on_event.register
    def _(self, event: WeightsCopied) -> None:
        if event.net == "train":
            log_line(f"Finetuning from {event.path}", "caffe.cpp:155")
            for row in str(event.report).splitlines():
                log_line(row, "net.cpp:744")

    @on_event.register
    def _(self, event: events.PlanChosen) -> None:
        for line in plan_lines(event):
            log_line(line)

    @on_event.register
    def _(self, event: events.LossScaleChanged) -> None:
        log_line(event.text)

    @on_event.register
    def _(self, event: events.Noted) -> None:
        log_line(event.text, "sgd_solver.cpp:46" if event.text.startswith(_STEPS_OF_RATES) else None)

    @on_event.register
    def _(self, event: BlobStatistics) -> None:
        log_line(blob_line(event), "net.cpp:640")

    @on_event.register
    def _(self, event: NetStatistics) -> None:
        # Caffe logs this one as an error, so that it is seen without the others.
        log_line(
            f"    [Backward] All net params (data, diff): L1 norm = ({number(event.data_l1)}, {number(event.diff_l1)});"
            f" L2 norm = ({number(event.data_l2)}, {number(event.diff_l2)})",
            "net.cpp:702",
            logging.ERROR,
        )

    @on_event.register
    def _(self, event: events.Warned) -> None:
        log_line(event.text, level=logging.WARNING)

    @on_event.register
    def _(self, event: events.Finished) -> None:
        if event.stopped_early:
            log_line("Optimization stopped early.", "solver.cpp:295")
        else:
            log_line("Optimization Done.", "solver.cpp:315")
        log_line("Optimization Done.", "caffe.cpp:259")
        for line in closing_lines(event, self._ranks, event.iteration - self._started_at):
            log_line(line)


def blob_line(event: BlobStatistics) -> str:
    """`    [Forward] Layer conv1, top blob conv1 data: 0.0645037`."""
    name = event.name
    if event.owner is not None:
        return (
            f"    [Update] Layer {event.layer}, param blob {name} (owned by layer {event.owner[0]},"
            f" param {event.owner[1]}) diff: {number(event.diff or 0.0)}"
        )
    figures = [
        f"{what}: {number(value)}" for what, value in (("data", event.data), ("diff", event.diff)) if value is not None
    ]
    return f"    [{event.step}] Layer {event.layer}, {event.blob} {name} {'; '.join(figures)}"


def output_text(value: events.OutputValue) -> str:
    """`#0: loss = 0.2604 (* 1 = 0.2604 loss)`."""
    weighted = ""
    if value.loss_weight:
        weighted = f" (* {number(value.loss_weight)} = {number(value.weighted)} loss)"
    return f"#{value.index}: {value.name} = {number(value.value)}{weighted}"
