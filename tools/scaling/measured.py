"""What a run's JSON log says about the trainers that `engine simulate --sync` predicts."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

from mgcaffe.errors import DataError, Location
from mgcaffe.tools.report.data import read_run


@dataclass(frozen=True)
class MeasuredRun:
    """What rank 0 measured.

    Attributes:
        iteration_s: seconds of an iteration, the median; in the foreground without the synchronization after it, in the
            background beside the shadow thread.
        batch: examples in it, of one worker.
        parameter_bytes: what a synchronization hands over.
        sync_s: seconds of a synchronization, the mean; waiting for other trainers included.
        processor_s: of which the synchronizing thread was on a core.
        workers: of a trainer (Hogwild).
    """

    iteration_s: float
    batch: int
    parameter_bytes: int
    sync_s: float
    processor_s: float
    workers: int = 1


def read_measured(path: str) -> MeasuredRun:
    """Read a JSON log.

    Raises:
        DataError: it cannot be read, or says nothing about records or synchronizations; located.
    """
    run = read_run(Path(path))
    last = next((line for line in reversed(run.syncs) if line.get("synchronizations")), None)
    if last is None:
        raise DataError(
            "no synchronization of replicas is in it",
            location=Location(path),
            hint="give what engine train --json_log wrote with --sync=ma, and a display before its end",
        )
    seconds = run.median("seconds")
    records = [line["images_per_s"] * line["seconds"] for line in run.iterations if line.get("images_per_s")]
    if not seconds > 0 or not records:
        raise DataError("it says nothing about the records of an iteration", location=Location(path))
    rounds = last["synchronizations"]
    workers = max(1, run.start.get("workers", 1))
    return MeasuredRun(
        iteration_s=seconds,
        batch=max(1, round(statistics.median(records) / workers)),
        parameter_bytes=max(1, round(last.get("sync_bytes", 0) / rounds)),
        sync_s=last.get("sync_ms", 0.0) / 1e3,
        processor_s=last.get("sync_processor_s", 0.0) / rounds,
        workers=workers,
    )
