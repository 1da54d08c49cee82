"""`plot_training_log TYPE PICTURE LOG...`: one curve of each log (Caffe: tools/extra/plot_training_log.py.example)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from mgcaffe.errors import EXIT_OK, DataError, UsageError
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.logs.reader import Row, RunLog, read_logs
from mgcaffe.tools.scripts import run_script

_FIELDS = ("Test accuracy", "Test loss", "Train learning rate", "Train loss")
_AXES = ("Iters", "Seconds")
CHARTS = [(field, axis) for field in _FIELDS for axis in _AXES]
"""What each chart type shows, up and across, in the order of Caffe's script."""


def parser() -> FlagParser:
    """Return the flags of `plot_training_log`: it has none."""
    types = "\n".join(f"  {number}: {field} vs. {axis}" for number, (field, axis) in enumerate(CHARTS))
    return FlagParser(
        "plot_training_log",
        "Draw one curve for each log. 'engine log --plot' draws everything that one run displayed.",
        files=("TYPE", "PICTURE", "LOG", "[LOG ...]"),
        epilog=f"chart types:\n{types}\n\nPICTURE ends in .png, .svg or .pdf.",
        alone=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line (default: this process's) and return its exit code."""
    return run_script(parser(), _run, arguments, least=3, more=True)


def _run(flags: Flags) -> int:
    from mgcaffe.tools.logs.plot import check_plot, draw_panels

    number, picture, *paths = flags.files
    if not number.isdecimal() or int(number) >= len(CHARTS):
        raise UsageError(
            f"'{number}' is no chart type", hint=f"it should be 0 to {len(CHARTS) - 1}; see 'plot_training_log --help'"
        )
    field, axis = CHARTS[int(number)]
    check_plot(picture, "PICTURE")
    series = {}
    for path in paths:
        points = _points(read_logs([path]), field, axis)
        if not points:
            raise DataError(f"log '{path}' has no '{field}' over '{axis}'", hint="another chart type may show more")
        name = Path(path).name.removesuffix(".log")
        series[name if name not in series else path] = points
    draw_panels(picture, f"{field} vs. {axis}", [(field, series)], across=axis, height=4.8)
    print(f"wrote {picture}")
    return EXIT_OK


def _points(log: RunLog, field: str, axis: str) -> list[tuple[float, float]]:
    """Return the points of a curve; a test's are those of the first test net."""
    rows = log.train if field.startswith("Train") else log.tests.get(min(log.tests, default=0), [])
    value = _VALUES[field]
    points = []
    for row in rows:
        x, y = row.iteration if axis == "Iters" else row.seconds, value(row)
        if x is not None and y is not None:
            points.append((float(x), y))
    return points


def _output(name: str, number: int) -> Callable[[Row], float | None]:
    """Return a reader of the output that is named so or, as in Caffe's script, has this number."""

    def value(row: Row) -> float | None:
        named = [value for _, its_name, value in sorted(row.outputs) if name in its_name.lower()]
        numbered = [value for its_number, _, value in row.outputs if its_number == number]
        return next(iter([*named, *numbered]), None)

    return value


def _train_loss(row: Row) -> float | None:
    return row.others.get("smoothed_loss", _output("loss", 0)(row))


_VALUES: dict[str, Callable[[Row], float | None]] = {
    "Test accuracy": _output("accuracy", 0),
    "Test loss": _output("loss", 1),
    "Train learning rate": lambda row: row.rate,
    "Train loss": _train_loss,
}


if __name__ == "__main__":
    sys.exit(main())
