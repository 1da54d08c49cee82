"""What `engine report` knows of a run: the lines of its JSON log, sorted out."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mgcaffe.errors import DataError


@dataclass
class RunLog:
    """A run, also one that was resumed in the same file: what came later for an iteration holds.

    Attributes:
        path: the file.
        start: the last `start` line.
        iterations: the `iteration` lines, by iteration, ascending.
        tests: the `test` lines, in the order of iterations.
        plan: the last `plan` line, if any.
        finish: the last line of the run, if it ended.
        notes: (kind, iteration or None, text) of everything else worth reading.
    """

    path: Path
    start: dict[str, Any] = field(default_factory=dict)
    iterations: list[dict[str, Any]] = field(default_factory=list)
    tests: list[dict[str, Any]] = field(default_factory=list)
    plan: dict[str, Any] | None = None
    finish: dict[str, Any] | None = None
    notes: list[tuple[str, int | None, str]] = field(default_factory=list)

    @property
    def settled(self) -> list[dict[str, Any]]:
        """The iterations with the final plan, without the first few."""
        first = self.plan["iter"] if self.plan else 0
        later = [line for line in self.iterations if line["iter"] >= first + 3]
        return later or self.iterations

    def median(self, name: str) -> float:
        """A figure's median over the settled iterations, 0 where it was never told."""
        values = [line[name] for line in self.settled if line.get(name) is not None]
        return statistics.median(values) if values else 0.0


def read_run(path: Path) -> RunLog:
    """Read a JSON log.

    Raises:
        DataError: it cannot be read, or is no such log.
    """
    run = RunLog(path)
    iterations: dict[int, dict[str, Any]] = {}
    tests: dict[tuple[int, int], dict[str, Any]] = {}
    for number, text in enumerate(read_text(path).splitlines(), 1):
        try:
            line = json.loads(text)
            kind = line["event"]
            if kind == "iteration":
                iterations[line["iter"]] = line
            elif kind == "test":
                tests[line["iter"], line["net"]] = line
            else:
                _note(run, kind, line)
        except (ValueError, KeyError, TypeError) as error:
            if number > 1 and isinstance(error, json.JSONDecodeError):
                break  # the run was cut off while it wrote its last line
            raise DataError(
                f"{path}:{number}: not a line of a JSON log: {text[:60]!r}",
                hint="give what engine train --json_log wrote",
            ) from None
    if not iterations:
        raise DataError(f"{path}: no iteration is told of here", hint="give what engine train --json_log wrote")
    run.iterations = [iterations[number] for number in sorted(iterations)]
    run.tests = [tests[key] for key in sorted(tests)]
    return run


def _note(run: RunLog, kind: str, line: dict[str, Any]) -> None:
    if kind == "start":
        run.start = line
        run.finish = None
    elif kind == "plan":
        run.plan = line
    elif kind == "finish":
        run.finish = line
    elif kind == "snapshot":
        run.notes.append((kind, line["iter"], str(line["state"])))
    elif "text" in line:
        run.notes.append((kind, line.get("iter"), str(line["text"])))


def read_predictions(path: Path) -> list[dict[str, Any]]:
    """Read what `engine plan --json` wrote: one entry a schedule.

    Raises:
        DataError: it cannot be read, is something else, or predicts for several numbers of workers.
    """
    text, hint = read_text(path), "give what engine plan --json wrote"
    try:
        entries = json.loads(text)
        predictions = [
            {
                "plan": entry["schedule"],
                "groups": entry["groups"] if isinstance(entry["groups"], int) else len(entry["groups"]),
                "predicted_ms": entry["iteration_s"] * 1e3,
                "exposed_ms": entry["exposed_s"] * 1e3,
            }
            for entry in entries
        ]
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path}: no predictions of schedules", hint=hint) from None
    if len({each["plan"] for each in predictions}) < len(predictions):
        raise DataError(f"{path}: predictions for several numbers of workers", hint=hint)
    return predictions


def read_text(path: Path) -> str:
    """A file's text.

    Raises:
        DataError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
