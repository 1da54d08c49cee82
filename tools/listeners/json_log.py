"""A training run as JSON lines, for machines: one object a line, its kind in `event`.

    {"event": "iteration", "iter": 100, "loss": 0.26, "lr": 0.01, "images_per_s": 5120.0, ...}
    {"event": "test", "iter": 500, "net": 0, "scores": {"accuracy": 0.98}, "loss": null, "seconds": 0.4}
    {"event": "snapshot", "iter": 500, "weights": "...", "state": "..."}
    {"event": "finish", "iter": 500, "examples_per_s": 5120.0, "iterations": [500, 500], "accuracy": 0.98, ...}

The scores of the last tests stand in `finish` under the names of their tops; one that is called like another value of
that line stands in its list `scores` alone.

Numbers that are not finite are null. Lines are appended, so that a resumed run goes on in the same file.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import singledispatchmethod
from pathlib import Path
from typing import Any

from mgcaffe.errors import EXIT_CANNOT_WRITE, EngineError
from mgcaffe.solvers import events
from mgcaffe.solvers.events.snapshots import BestFound, NothingToRestore, Restored, SnapshotWritten
from mgcaffe.solvers.events.testing import Tested

_FLUSH_EVERY_S = 1.0

_log = logging.getLogger(__name__)


class JsonLog:
    """Writes the events of a run to a file, at the latest a second after they happened.

    When it cannot be written any more, as on a full disk, that is said once, and the run goes on without it.

    Raises:
        EngineError: with exit code 73, when the file cannot be opened.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._flushed_at = time.monotonic()
        try:
            is_cut_off = _ends_within_a_line(self.path)
            self._file = self.path.open("a", encoding="utf-8")
            if is_cut_off:
                self._file.write("\n")  # or this run's first event would be a part of the line
        except OSError as error:
            raise EngineError(
                f"cannot write the JSON log {self.path}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE
            ) from None

    @singledispatchmethod
    def on_event(self, event: events.Event) -> None:
        """Write an event; kinds without a line of their own are passed over."""

    @on_event.register
    def _(self, event: events.Started) -> None:
        self._write(
            "start", net=event.net, solver=event.solver_type, lr_policy=event.policy, iter=event.iteration,
            max_iter=event.max_iter, batch_size=event.batch_size, parameters=event.parameters,
            ranks=event.ranks, workers=event.workers, precision=event.precision or None,
        )  # fmt: skip

    @on_event.register
    def _(self, event: events.IterationDone) -> None:
        self._write(
            "iteration",
            iter=event.iteration,
            loss=event.loss,
            smoothed_loss=event.smoothed_loss,
            lr=event.rate,
            seconds=event.seconds,
            images_per_s=event.images / event.seconds if event.seconds > 0 else None,
            data_wait_ms=event.data_wait_s * 1e3,
            comm_hidden_ms=event.comm_hidden_s * 1e3,
            comm_exposed_ms=event.comm_exposed_s * 1e3,
            **{f"data_{stage}_ms": seconds * 1e3 for stage, seconds in event.data_work_s.items()},
        )

    @on_event.register
    def _(self, event: Tested) -> None:
        self._write(
            "test", iter=event.iteration, net=event.net, scores=scores_by_name(event.scores),
            loss=event.loss, seconds=event.seconds,
        )  # fmt: skip

    @on_event.register
    def _(self, event: SnapshotWritten) -> None:
        self._write("snapshot", iter=event.iteration, weights=event.weights, state=event.state)

    @on_event.register
    def _(self, event: BestFound) -> None:
        self._write("best", iter=event.iteration, output=event.output, value=event.value, state=event.state)

    @on_event.register
    def _(self, event: NothingToRestore) -> None:
        self._write("anew", prefix=event.prefix)

    @on_event.register
    def _(self, event: Restored) -> None:
        self._write("restore", iter=event.iteration, weights=event.weights, state=event.state)

    @on_event.register
    def _(self, event: events.PlanChosen) -> None:
        plan = event.plan
        groups = [[group.first_segment, group.last_segment, group.bytes] for group in plan.groups] if plan else []
        trials = event.decision.trials if event.decision else ()
        self._write(
            "plan",
            iter=event.iteration,
            schedule=event.schedule,
            plan=plan.schedule if plan else None,
            blocking=plan.blocking if plan else None,
            overlap_forward=plan.overlaps_forward if plan else None,
            groups=groups,
            predicted_from=event.decision.predicted_from if event.decision else None,
            predicted=_predicted(plan) if plan else None,
            trials=[_trial(trial) for trial in trials],
        )

    @on_event.register
    def _(self, event: events.LossScaleChanged) -> None:
        self._write("loss_scale", iter=event.iteration, scale=event.scale, skipped=event.is_skipped, text=event.text)

    @on_event.register
    def _(self, event: events.Noted) -> None:
        self._write("note", text=event.text)

    @on_event.register
    def _(self, event: events.Warned) -> None:
        self._write("warning", text=event.text)

    @on_event.register
    def _(self, event: events.Synchronized) -> None:
        self._write(
            "sync", iter=event.iteration, iterations=list(event.iterations), examples_per_s=event.examples_per_s,
            rounds=list(event.figures.rounds), distances=list(event.figures.distances),
            **_synchronization(event.figures),
        )  # fmt: skip

    @on_event.register
    def _(self, event: events.TablesLookedUp) -> None:
        figures = event.figures
        self._write(
            "look_ups", iter=event.iteration, look_ups=figures.look_ups,
            latency_ms=1e3 * figures.latency_s / figures.look_ups if figures.look_ups else None,
            waited_ms=1e3 * figures.waited_s / figures.look_ups if figures.look_ups else None,
            sent_bytes=figures.sent, received_bytes=figures.received,
        )  # fmt: skip

    @on_event.register
    def _(self, event: events.Finished) -> None:
        values = dict(
            iter=event.iteration, stopped_early=event.stopped_early, seconds=event.seconds,
            images=event.images, comm_hidden_ms=event.comm_hidden_s * 1e3,
            comm_exposed_ms=event.comm_exposed_s * 1e3, hidden_share=event.hidden_share,
            snapshot=event.snapshot, training_s=event.training_s, examples_per_s=event.examples_per_s,
            iterations=list(event.iterations), **_synchronization(event.synchronization),
            scores=[scores_by_name(scores) for scores in event.scores],
            mean_scores=[scores_by_name(scores) for scores in event.mean_scores],
        )  # fmt: skip
        for scores in reversed(event.scores):
            values = {**scores_by_name(scores), **values}
        self._write("finish", **values)

    def close(self) -> None:
        """Write what is left."""
        try:
            self._file.close()
        except OSError as error:
            self._give_up(error)

    def _write(self, kind: str, **values: Any) -> None:
        if self._file.closed:
            return
        try:
            self._file.write(json.dumps({"event": kind, **_finite(values)}) + "\n")
            if kind != "iteration" or time.monotonic() - self._flushed_at > _FLUSH_EVERY_S:
                self._file.flush()
                self._flushed_at = time.monotonic()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        with suppress(OSError):  # what is left in its buffer cannot be written either
            self._file.close()
        _log.warning("cannot write the JSON log %s any more: %s", self.path, error.strerror)


def _ends_within_a_line(path: Path) -> bool:
    """Return whether a run was killed while it wrote the last line of a file."""
    try:
        if not path.is_file() or not path.stat().st_size:
            return False
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read() != b"\n"
    except OSError:  # a log that may be written, but not read
        return False


def _predicted(plan: Any) -> dict[str, float] | None:
    """Return what a plan (comm.Plan) says of an iteration, in ms; None where it was made without measured times."""
    if plan.backward_end <= 0:
        return None
    times = {"backward_ms": plan.backward_end, "communication_ms": plan.busy, "exposed_ms": plan.exposed}
    return {name: seconds * 1e3 for name, seconds in times.items()}


def _synchronization(figures: Any) -> dict[str, Any]:
    """Return the totals of a trainer's synchronization (SyncFigures); nothing was synchronized where there are none."""
    if figures is None:
        return {"synchronizations": 0, "gap": None}
    return {
        "synchronizations": figures.synchronizations,
        "gap": figures.gap,
        "sync_bytes": figures.bytes,
        "sync_ms": 1e3 * figures.seconds / figures.synchronizations if figures.synchronizations else None,
        "sync_processor_s": figures.processor_s,
        "sync_exposed_ms": 1e3 * figures.exposed_s / figures.iterations if figures.iterations else None,
        "distance": figures.distance,
    }


def _trial(trial: Any) -> dict[str, Any]:
    """Return a plan that was tried (comm.trials.Trial)."""
    candidate = trial.candidate
    return {
        "plan": candidate.label,
        "blocking": candidate.plan.blocking,
        "overlap_forward": candidate.plan.overlaps_forward,
        "groups": len(candidate.plan.groups),
        "predicted_ms": candidate.predicted * 1e3,
        "measured_ms": trial.median * 1e3,
        "exposed_ms": trial.exposed * 1e3,
        "iterations": len(trial.seconds),
    }


def scores_by_name(scores: Iterable[events.OutputValue]) -> dict[str, Any]:
    """Each output's number, or the list of its numbers where it has several."""
    values: dict[str, list[float]] = {}
    for score in scores:
        values.setdefault(score.name, []).append(score.value)
    return {name: numbers[0] if len(numbers) == 1 else numbers for name, numbers in values.items()}


def _finite(value: Any) -> Any:
    """Return the value with every number that JSON cannot express replaced by None."""
    if isinstance(value, dict):
        return {name: _finite(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
