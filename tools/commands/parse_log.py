"""`parse_log LOG DIR`: a training log as two tables (Caffe: tools/extra/parse_log.py).

As Caffe's, but for the learning rate of a training row, which is that of its own iteration: Caffe's script, which
reads on line by line, writes the one displayed before.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path

from mgcaffe.errors import EXIT_OK, UsageError
from mgcaffe.errors.whole_files import write_output
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.logs.reader import Row, read_logs
from mgcaffe.tools.scripts import run_script

_NAN = float("nan")


def parser() -> FlagParser:
    """Return the flags of `parse_log`."""
    flags = FlagParser(
        "parse_log",
        "Write a training log's displayed iterations and tests into DIR as LOG.train and LOG.test (further test nets:\n"
        "LOG.test1, ...). 'engine log' has more: several logs as one, summaries, plots.",
        files=("LOG", "DIR"),
        alone=True,
    )
    flags.flag("delimiter", "what separates columns", default=",")
    flags.switch("verbose", "name the files that are written")
    return flags


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: this process's) and return its exit code."""
    return run_script(parser(), _run, arguments, least=2)


def _run(flags: Flags) -> int:
    path, folder = flags.files
    delimiter = flags.delimiter.replace("\\t", "\t")
    if len(delimiter) != 1 or delimiter in '"\r\n':
        raise UsageError(f"--delimiter is '{flags.delimiter}'", hint="it should be one character, as , or ; or \\t")
    log = read_logs([path])
    # The loss after the last iteration is displayed by itself, which is no row in Caffe's table either.
    tables = [("train", [row for row in log.train if row.outputs]), ("test", log.tests.get(0, []))]
    tables += [(f"test{net}", log.tests[net]) for net in sorted(log.tests) if net]
    for kind, rows in tables:
        target = Path(folder) / f"{Path(path).name}.{kind}"
        if rows:
            _write(target, rows, delimiter)
        if flags.verbose:
            print(f"Wrote {target}" if rows else f"Not writing {target}; no lines to write")
    return EXIT_OK


def _write(target: Path, rows: Sequence[Row], delimiter: str) -> None:
    outputs = [dict(list(row.values().items())[: len(row.outputs)]) for row in rows]
    names = list(dict.fromkeys(name for row in outputs for name in row))
    rates = [_NAN if row.rate is None else row.rate for row in rows]
    if len(rates) > 1 and rates[0] != rates[0]:
        rates[0] = rates[1]  # the first test comes before any rate is displayed
    text = io.StringIO()
    table = csv.writer(text, delimiter=delimiter)
    table.writerow(["NumIters", "Seconds", "LearningRate", *names])
    for row, rate, values in zip(rows, rates, outputs, strict=True):
        seconds = _NAN if row.seconds is None else row.seconds
        table.writerow([float(row.iteration), seconds, rate, *(values.get(name, "") for name in names)])
    write_output(target, text.getvalue())


if __name__ == "__main__":
    sys.exit(main())
