"""What `engine report` knows of a run: the lines of its JSON log, sorted out."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgcaffe.engine.data.stages import STAGES
from mgcaffe.errors import DataError, Location
from mgcaffe.errors.checked_json import Json, parse_json
from mgcaffe.errors.file_names import refuse_device

_HINT = "give what engine train --json_log wrote"
_SYNCHRONIZATION: dict[str, Callable[[Json], Any]] = dict.fromkeys(
    ("examples_per_s", "gap", "sync_ms", "sync_processor_s", "sync_exposed_ms"), Json.number
) | dict.fromkeys(("synchronizations", "sync_bytes"), Json.integer)
# The members of each kind of line that are read, apart from lists and objects, and their types.
_MEMBERS: dict[str, dict[str, Callable[[Json], Any]]] = {
    "start": {
        "net": Json.text,
        "max_iter": Json.integer,
        "ranks": Json.integer,
        "workers": Json.integer,
        "parameters": Json.integer,
        "precision": Json.text,
    },
    "iteration": dict.fromkeys(
        (
            *("loss", "smoothed_loss", "lr", "seconds", "images_per_s", "data_wait_ms"),
            *("comm_hidden_ms", "comm_exposed_ms", *(f"data_{stage}_ms" for stage in STAGES)),
        ),
        Json.number,
    ),
    "plan": {"plan": Json.text, "schedule": Json.text},
    "sync": _SYNCHRONIZATION,
    "finish": {"stopped_early": Json.flag} | _SYNCHRONIZATION,
    "trial": {
        "plan": Json.text,
        "blocking": Json.flag,
        "groups": Json.integer,
        "predicted_ms": Json.number,
        "measured_ms": Json.number,
        "exposed_ms": Json.number,
    },
}


@dataclass
class RunRecord:
    """A run, also one that was resumed in the same file: what came later for an iteration holds.

    Of each line there are the members that the page reads, checked; a member that is null is left out.

    Attributes:
        path: the file.
        start: the last `start` line.
        iterations: the `iteration` lines, by iteration, ascending.
        tests: the `test` lines, in the order of iterations.
        syncs: the `sync` lines of trainers with replicas of their own, likewise.
        plan: the last `plan` line, if any.
        finish: the last line of the run, if it ended.
        notes: (kind, iteration or None, text) of everything else worth reading.
    """

    path: Path
    start: dict[str, Any] = field(default_factory=dict)
    iterations: list[dict[str, Any]] = field(default_factory=list)
    tests: list[dict[str, Any]] = field(default_factory=list)
    syncs: list[dict[str, Any]] = field(default_factory=list)
    plan: dict[str, Any] | None = None
    finish: dict[str, Any] | None = None
    notes: list[tuple[str, int | None, str]] = field(default_factory=list)

    @property
    def by_final_plan(self) -> list[dict[str, Any]]:
        """The iterations with the final plan, without the first few."""
        first = self.plan["iter"] if self.plan else 0
        later = [line for line in self.iterations if line["iter"] >= first + 3]
        return later or self.iterations

    @property
    def waited_for_rounds_ms(self) -> float:
        """What rank 0 waited for each iteration while replicas were synchronized; 0 in the background."""
        return float(self.sync_totals.get("sync_exposed_ms", 0.0)) if self.syncs else 0.0

    @property
    def sync_totals(self) -> dict[str, Any]:
        """The line with the latest totals of trainers with replicas of their own: `finish`, or else the last `sync`."""
        finish = self.finish or {}
        return finish if "synchronizations" in finish and finish.get("iterations") else self.syncs[-1]

    @property
    def data_stages(self) -> dict[str, float]:
        """What making batches took by stage, in ms over all iterations by the final plan."""
        return {stage: sum(line.get(f"data_{stage}_ms", 0.0) for line in self.by_final_plan) for stage in STAGES}

    def median(self, name: str) -> float:
        """Return a figure's median over the iterations by the final plan, 0 where it was never given."""
        values = [line[name] for line in self.by_final_plan if line.get(name) is not None]
        return statistics.median(values) if values else 0.0


def read_run(path: Path) -> RunRecord:
    """Read a JSON log.

    Raises:
        DataError: it cannot be read, or is no such log; located.
    """
    run = RunRecord(path)
    iterations: dict[int, dict[str, Any]] = {}
    tests: dict[tuple[int, int], dict[str, Any]] = {}
    syncs: dict[int, dict[str, Any]] = {}
    for number, text in enumerate(read_text(path).split("\n"), 1):
        try:
            line = parse_json(text, str(path), "not a line of a JSON log", hint=_HINT, line=number)
        except DataError:
            if number > 1:
                continue  # here a run was cut off while it wrote, and perhaps another one went on in the same line
            raise
        kind = line["event"].text()
        if kind == "iteration":
            iterations[line["iter"].integer()] = _checked(line, kind)
        elif kind == "test":
            at = line["iter"].integer(), line["net"].integer()
            tests[at] = {"iter": at[0], "net": at[1], "scores": _scores(line["scores"])}
        elif kind == "sync":
            syncs[line["iter"].integer()] = _sync(line)
        else:
            _note(run, kind, line)
    if not iterations:
        raise DataError("it holds no iteration", location=Location(str(path)), hint=_HINT)
    run.iterations = [iterations[number] for number in sorted(iterations)]
    run.tests = [tests[key] for key in sorted(tests)]
    run.syncs = [syncs[number] for number in sorted(syncs)]
    return run


def _checked(line: Json, kind: str) -> dict[str, Any]:
    """Return the members of a line that are read, and its iteration."""
    values = {"iter": line["iter"].integer()} if kind not in ("start", "trial") else {}
    for name, read in _MEMBERS[kind].items():
        member = line.get(name)
        if member is not None:
            values[name] = read(member)
    return values


def _sync(line: Json) -> dict[str, Any]:
    """Return a line about replicas; rounds and distances are empty lists before the trainers' first agreement."""
    iterations = _counts(line["iterations"])
    rounds = _counts(line["rounds"])
    distances = [_number_or_none(distance) for distance in line["distances"].elements()]
    more = {"iterations": iterations, "rounds": rounds or [0] * len(iterations), "distances": distances}
    return _checked(line, "sync") | more


def _counts(counts: Json) -> list[int]:
    return [count.integer(least=0) for count in counts.elements()]


def _number_or_none(value: Json) -> float | None:
    return None if value.value is None else value.number()


def _scores(scores: Json) -> dict[str, float]:
    """Return the scores of one finite number each; of a list of numbers nothing is shown."""
    members = {name: value for name, value in scores.members().items() if value.value is not None}
    return {name: value.number() for name, value in members.items() if not value.is_list()}


def _note(run: RunRecord, kind: str, line: Json) -> None:
    if kind == "start":
        run.start = _checked(line, kind)
        run.finish = None
    elif kind == "plan":
        trials = line.get("trials")
        run.plan = _checked(line, kind)
        if "predicted_from" in line.value:
            source = line.get("predicted_from")
            run.plan["predicted_from"] = source.text() if source is not None else None
        run.plan["groups"] = len(line["groups"].elements())
        if (predicted := line.get("predicted")) is not None:
            run.plan["predicted"] = {name: value.number() for name, value in predicted.members().items()}
        run.plan["trials"] = [_trial(trial) for trial in trials.elements()] if trials is not None else []
    elif kind == "finish":
        run.finish = _checked(line, kind)
        if (iterations := line.get("iterations")) is not None:
            run.finish["iterations"] = _counts(iterations)
        for name in ("scores", "mean_scores"):
            if (nets := line.get(name)) is not None:
                run.finish[name] = [_scores(scores) for scores in nets.elements()]
    elif kind == "snapshot":
        run.notes.append((kind, line["iter"].integer(), line["state"].text()))
    elif (text := line.get("text")) is not None:
        at = line.get("iter")
        run.notes.append((kind, at.integer() if at is not None else None, text.text()))


def _trial(trial: Json) -> dict[str, Any]:
    """Return a plan that was tried, or that has been predicted only."""
    needed = ("plan", "groups", "predicted_ms", "exposed_ms")
    return _checked(trial, "trial") | {name: _MEMBERS["trial"][name](trial[name]) for name in needed}


def read_predictions(path: Path) -> list[dict[str, Any]]:
    """Read what `engine plan --json` wrote: one entry a schedule.

    Raises:
        DataError: it cannot be read, is something else, or predicts for several numbers of workers; located.
    """
    text, hint = read_text(path), "give what engine plan --json wrote"
    entries = parse_json(text, str(path), "no predictions of schedules", hint=hint).elements()
    predictions = [
        {
            "plan": entry["schedule"].text(),
            "groups": len(entry["groups"].elements()) if entry["groups"].is_list() else entry["groups"].integer(),
            "predicted_ms": entry["iteration_s"].number() * 1e3,
            "exposed_ms": entry["exposed_s"].number() * 1e3,
        }
        for entry in entries
    ]
    if len({each["plan"] for each in predictions}) < len(predictions):
        raise DataError("predictions for several numbers of workers", location=Location(str(path)), hint=hint)
    return predictions


def read_text(path: Path) -> str:
    """Return a file's text.

    Raises:
        DataError: it cannot be read.
    """
    try:
        refuse_device(path)
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
