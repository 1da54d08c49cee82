"""`engine log`: training logs as CSV tables and plots (Caffe: tools/extra/parse_log.py and plot_training_log.py)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from mgcaffe.errors import EXIT_CANNOT_WRITE, EXIT_OK, EngineError, UsageError
from mgcaffe.errors.whole_files import write_output
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.listeners.glog import number
from mgcaffe.tools.logs.reader import Row, RunLog, read_logs
from mgcaffe.tools.running.session import Session
from mgcaffe.tools.table import format_table

_FIRST_COLUMNS = ("NumIters", "Seconds", "LearningRate")


def parser() -> FlagParser:
    """Return the flags of `engine log`."""
    flags = FlagParser(
        "log",
        "Read training logs, Caffe's, ours and --json_log's, into tables. Several logs, in order, count as one run:\n"
        "where one resumes, it takes the place of what the earlier ones have from that iteration on.",
        files=("LOG", "[LOG ...]"),
        epilog=(
            "examples:\n"
            "  engine log run.log\n"
            "  engine log run.log --csv run.csv         # run.train.csv, and run.test.csv for each test net\n"
            "  engine log first.log resumed.log --plot run.png"
        ),
    )
    flags.flag(
        "csv", "write FILE's name with .train.csv and .test.csv (.test0.csv, ... for several nets)", metavar="FILE"
    )
    flags.flag("plot", "draw losses, scores and learning rate into this file (.png, .svg or .pdf)", metavar="FILE")
    return flags


def run(flags: Flags, session: Session) -> int:
    """Read the logs, write what is asked for, and print a summary."""
    session.refuse_ranks("log")
    if not flags.files:
        raise UsageError("the log is missing", hint="engine log LOG [LOG ...] [flags]")
    if flags.plot:
        from mgcaffe.tools.logs.plot import check_plot

        check_plot(flags.plot)
    log = read_logs(flags.files)
    print(summary(log))
    if flags.csv:
        for path in write_tables(log, flags.csv):
            print(f"wrote {path}")
    if flags.plot:
        from mgcaffe.tools.logs.plot import plot_log

        plot_log(flags.plot, log)
        print(f"wrote {flags.plot}")
    return EXIT_OK


def summary(log: RunLog) -> str:
    """Return the first, last, least and greatest value of every column of every table."""
    runs = f", {log.runs} runs" if log.runs > 1 else ""
    parts = [f"Net '{log.net}'{runs}" if log.net else f"A net without a name{runs}"]
    for title, rows in _tables(log):
        if not rows:
            continue
        parts.append(f"{title}: {len(rows)} rows, iterations {rows[0].iteration} to {rows[-1].iteration}")
        lines = []
        for name in _names(rows):
            found = [(row.values()[name], row.iteration) for row in rows if name in row.values()]
            finite = [entry for entry in found if math.isfinite(entry[0])]
            ends = [number(found[0][0]), number(found[-1][0])]
            span = [f"{number(value)} at {at}" for value, at in (min(finite), max(finite))] if finite else ["", ""]
            lines.append([name, *ends, *span])
        parts.append(format_table(("value", "first", "last", "least", "greatest"), lines))
    return "\n\n".join(parts)


def write_tables(log: RunLog, path: str) -> list[Path]:
    """Write a CSV file for training and one for each test net, with the columns of Caffe's parse_log first.

    Returns:
        Their paths.

    Raises:
        EngineError: (exit code 73) one cannot be written.
    """
    stem = Path(path)
    if not stem.name:
        raise EngineError(f"cannot write {path}: it names a folder", exit_code=EXIT_CANNOT_WRITE)
    if stem.suffix == ".csv":
        stem = stem.with_suffix("")
    tests = sorted(log.tests)
    tables = [("train", log.train)]
    tables += [("test" if len(tests) == 1 else f"test{net}", log.tests[net]) for net in tests]
    written = []
    for kind, rows in tables:
        if not rows:
            continue
        target = stem.with_name(f"{stem.name}.{kind}.csv")
        write_output(target, _table_text(rows))
        written.append(target)
    return written


def _table_text(rows: Sequence[Row]) -> str:
    names = _names(rows)
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow([*_FIRST_COLUMNS, *names])
    for row in rows:
        values = row.values()
        first = [row.iteration, _cell(row.seconds), _cell(row.rate)]
        table.writerow([*first, *(_cell(values.get(name)) for name in names)])
    return text.getvalue()


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.10g}"


def _names(rows: Sequence[Row]) -> list[str]:
    """Return every column that some row has: the outputs, then the other figures."""
    outputs = dict.fromkeys(name for row in rows for name in list(row.values())[: len(row.outputs)])
    return [*outputs, *dict.fromkeys(name for row in rows for name in row.values() if name not in outputs)]


def _tables(log: RunLog) -> list[tuple[str, list[Row]]]:
    return [("Training", log.train), *((f"Test net #{net}", log.tests[net]) for net in sorted(log.tests))]
