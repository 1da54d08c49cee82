"""Reads training logs into tables: Caffe's own, of any age and fork, ours, and the lines of `--json_log`.

Lines that belong to something else are passed over, also in the middle of an iteration's, and so is what a launcher
puts in front of a line. A log of several runs, or several logs in order, make one table: where a run begins anew, or
resumes at an iteration, its rows take the place of the earlier ones from there on.

Grammar (Caffe: solver.cpp, sgd_solver.cpp; `tools/extra/parse_log.py` reads the same):

- `Iteration 100 (50.1 iter/s, 1.99s/100 iters), loss = 0.2604`, in older logs without the speed
- `Train net output #0: loss = 0.2604 (* 1 = 0.2604 loss)`
- `Iteration 100, lr = 0.00992565`
- `Iteration 500, Testing net (#0)`, then `Test net output #0: accuracy = 0.9785` and perhaps `Test loss: 0.06`
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from mgcaffe.errors import DataError
from mgcaffe.errors.checked_json import Json, parse_json
from mgcaffe.errors.file_names import refuse_device
from mgcaffe.tools.logs.clock import LogClock

_NUMBER = r"([-+]?(?:nan|inf(?:inity)?|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?))"
_ITERATION = re.compile(r"Iteration (\d{1,18})\b(.*)")
_TESTING = re.compile(r"Testing net \(#(\d{1,9})\)")
_SPEED = re.compile(rf"\({_NUMBER} iter/s", re.IGNORECASE)
_LOSS = re.compile(rf"\bloss = {_NUMBER}", re.IGNORECASE)
_RATE = re.compile(rf"\blr = {_NUMBER}", re.IGNORECASE)
_OUTPUT = re.compile(rf"(Train|Test) net output #(\d{{1,9}}): (.+?) = {_NUMBER}(?:\s|$)", re.IGNORECASE)
_TEST_LOSS = re.compile(rf"Test loss: {_NUMBER}", re.IGNORECASE)
_COMM = re.compile(rf"Communication: {_NUMBER} ms hidden, {_NUMBER} ms exposed (?:an|per) iteration")
_DATA = re.compile(rf"Data: {_NUMBER} ms waited (?:for an|per) iteration")


@dataclass
class Row:
    """An iteration that was displayed, or a test.

    Attributes:
        iteration: updates done before.
        seconds: since the first run began, not counting the time between runs; None if the log does not say.
        rate: the learning rate; None likewise.
        outputs: number, name and value of each of the net's outputs.
        others: further figures by name.
    """

    iteration: int
    seconds: float | None = None
    rate: float | None = None
    outputs: list[tuple[int, str, float]] = field(default_factory=list)
    others: dict[str, float] = field(default_factory=dict)

    def values(self) -> dict[str, float]:
        """Return every output by its name (with its number where several share one), then the other figures."""
        names = [name for _, name, _ in self.outputs]
        named = {
            name if names.count(name) == 1 else f"{name}_{number}": value
            for number, name, value in sorted(self.outputs)
        }
        return {**named, **{name: value for name, value in self.others.items() if name not in named}}


@dataclass
class RunLog:
    """What one or several logs say.

    Attributes:
        net: the name of the net, if it is said.
        runs: how often training began.
        train: the displayed iterations, ascending.
        tests: the tests of each test net, ascending.
    """

    net: str = ""
    runs: int = 0
    train: list[Row] = field(default_factory=list)
    tests: dict[int, list[Row]] = field(default_factory=dict)


def read_logs(paths: Sequence[str]) -> RunLog:
    """Read logs, each the continuation of the one before.

    Raises:
        DataError: one cannot be read, or holds no iteration.
    """
    reader = _Reader()
    for path in paths:
        before = reader.count
        try:
            refuse_device(path)
            with Path(path).open(encoding="utf-8", errors="replace") as lines:
                reader.read(lines, path)
        except OSError as error:
            raise DataError(f"log '{path}' cannot be read: {error.strerror}") from error
        if reader.count == before:
            raise DataError(
                f"log '{path}' holds no iteration and no test",
                hint="it should be what Caffe or engine train wrote to standard error, or a --json_log",
            )
    return reader.finish()


class _Reader:
    """Goes through the lines.

    Attributes:
        count: rows found so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._log = RunLog()
        self._row: Row | None = None
        self._truncates = False
        self._clock = LogClock()
        self._start: datetime | None = None
        self._seconds = self._offset = 0.0

    def read(self, lines: Iterable[str], file: str) -> None:
        """Take the lines of a file.

        Raises:
            DataError: one of them is JSON, but not as --json_log writes it; located.
        """
        self._row, self._clock, self._start = None, LogClock(), None
        self._begin()
        for number, line in enumerate(lines, 1):
            text = line.rstrip("\n")
            if text.lstrip().startswith("{") and (entry := _json_entry(text, file, number)) is not None:
                self._read_json(entry)
                continue
            timed, text = self._clock.read(text)
            if timed and self._start is None:
                self._start = self._clock.time
            self._read_text(text)

    def finish(self) -> RunLog:
        """Return the tables, with the rates that hold at each test."""
        rates = [(row.iteration, row.rate) for row in self._log.train if row.rate is not None]
        for rows in self._log.tests.values():
            for row in rows:
                known = [rate for iteration, rate in rates if iteration <= row.iteration]
                row.rate = known[-1] if known else row.rate
        return self._log

    # -- runs and rows -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Note that a run begins; its first row says where."""
        self._truncates = True
        self._row = None

    def _add(self, rows: list[Row], iteration: int) -> Row:
        if self._truncates:
            self._truncate(iteration)
        if rows and rows[-1].iteration == iteration:
            rows.pop()
        self._row = Row(iteration, self._elapsed())
        rows.append(self._row)
        self.count += 1
        return self._row

    def _truncate(self, iteration: int) -> None:
        """Forget what earlier runs did from this iteration on, and go on with their clock."""
        self._truncates = False
        for rows in (self._log.train, *self._log.tests.values()):
            while rows and rows[-1].iteration >= iteration:
                rows.pop()
        known = [
            row.seconds for rows in (self._log.train, *self._log.tests.values()) for row in rows[-1:] if row.seconds
        ]
        self._offset = max(known, default=0.0)
        self._seconds = 0.0

    def _elapsed(self) -> float | None:
        if self._clock.time is not None and self._start is not None:
            return self._offset + (self._clock.time - self._start).total_seconds()
        return self._offset + self._seconds if self._seconds else None

    # -- lines of a log ----------------------------------------------------------------------------------

    def _read_text(self, text: str) -> None:
        if text.startswith("Solving ") and len(text.split()) >= 2:
            self._log.net = text.removeprefix("Solving ").strip()
            self._log.runs += 1
            self._begin()
            self._start = self._clock.time
            return
        if text.startswith("Optimization "):
            self._row = None  # what follows sums the run up
        elif match := _OUTPUT.search(text):
            if self._row is not None:
                self._row.outputs.append((int(match[2]), match[3], float(match[4])))
        elif match := _ITERATION.search(text):
            self._read_iteration(int(match[1]), match[2])
        elif self._row is None:
            return
        elif match := _TEST_LOSS.search(text):
            self._row.others["test_loss"] = float(match[1])
        elif match := _COMM.search(text):
            self._row.others |= {"comm_hidden_ms": float(match[1]), "comm_exposed_ms": float(match[2])}
        elif match := _DATA.search(text):
            self._row.others["data_wait_ms"] = float(match[1])

    def _read_iteration(self, iteration: int, rest: str) -> None:
        if match := _TESTING.search(rest):
            self._add(self._log.tests.setdefault(int(match[1]), []), iteration)
        elif match := _LOSS.search(rest):
            row = self._add(self._log.train, iteration)
            row.others["smoothed_loss"] = float(match[1])
            if speed := _SPEED.search(rest):
                row.others["iterations_per_s"] = float(speed[1])
        elif match := _RATE.search(rest):
            rows = self._log.train
            if rows and rows[-1].iteration == iteration:
                rows[-1].rate = float(match[1])

    # -- lines of a JSON log -----------------------------------------------------------------------------

    def _read_json(self, entry: Json) -> None:
        kind = entry["event"].value
        if kind == "start":
            self._log.net = net.text() if (net := entry.get("net")) is not None else ""
            self._log.runs += 1
            self._begin()
        elif kind == "iteration":
            self._seconds += _number(entry, "seconds", 0.0)
            row = self._add(self._log.train, entry["iter"].integer(least=0))
            row.rate = _number(entry, "lr")
            row.outputs.append((0, "loss", _number(entry, "loss")))
            names = ("smoothed_loss", "images_per_s", "data_wait_ms", "comm_hidden_ms", "comm_exposed_ms")
            row.others = {name: _number(entry, name) for name in names if name in entry.value}
        elif kind == "test":
            net = entry.get("net")
            rows = self._log.tests.setdefault(net.integer(least=0) if net is not None else 0, [])
            row = self._add(rows, entry["iter"].integer(least=0))
            self._seconds += _number(entry, "seconds", 0.0)
            scores = entry.get("scores")
            for name, value in scores.members().items() if scores is not None else ():
                for number in value.elements() if value.is_list() else [value]:
                    row.outputs.append((len(row.outputs), name, _finite(number)))
            if entry.get("loss") is not None:
                row.others["test_loss"] = _number(entry, "loss")


def _json_entry(text: str, file: str, number: int) -> Json | None:
    try:
        entry = parse_json(text, file, "not a line of a JSON log", line=number)
    except DataError:
        return None
    return entry if isinstance(entry.value, dict) and "event" in entry.value else None


def _number(entry: Json, name: str, otherwise: float = float("nan")) -> float:
    """Return a number of a JSON log, where what is not finite is null."""
    value = entry.get(name)
    return otherwise if value is None else value.number()


def _finite(value: Json) -> float:
    return float("nan") if value.value is None else value.number()
