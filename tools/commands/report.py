"""`engine report`: one HTML page that shows where a training run's time went and how it learned.

The page needs no network and no other file. It is made from the run's `--json_log`, and from its `--timeline` for the
picture of an iteration and for predicted against measured communication.
"""

from __future__ import annotations

from pathlib import Path

from mgcaffe.errors import EXIT_OK, UsageError
from mgcaffe.errors.whole_files import write_output
from mgcaffe.tools.flags.parsing import FlagParser, Flags
from mgcaffe.tools.running.session import Session


def parser() -> FlagParser:
    """Return the flags of `engine report`."""
    flags = FlagParser(
        "report",
        "Make an HTML page of a training run: where an iteration's time went, what each merged group was predicted to\n"
        "take and took, how the schedules compare, and the curves of loss, rate and scores.",
        subject="run",
        epilog=(
            "examples:\n"
            "  mpirun -n 2 engine train solver.prototxt --json_log=run.json --timeline=run.timeline.json\n"
            "  engine report run.json                       # finds run.timeline.json beside it, writes run.html"
        ),
    )
    flags.flag("run", "what engine train --json_log wrote", metavar="FILE")
    flags.flag(
        "timeline",
        "what engine train --timeline wrote (default: RUN.timeline.json, or timeline.json beside it, if there is one)",
        metavar="FILE",
    )
    flags.flag("log", "the run's log, whose warnings and last lines are shown", metavar="FILE")
    flags.flag(
        "plan", "what engine plan --json wrote, for the comparison of schedules where the run has tried none",
        metavar="FILE",
    )  # fmt: skip
    flags.flag("output", "the page (default: RUN.html)", metavar="FILE")
    return flags


def run(flags: Flags, session: Session) -> int:
    """Write the page."""
    session.refuse_ranks("report")
    if not flags.run:
        raise UsageError("the run is missing", hint="give what engine train --json_log wrote: engine report run.json")
    from mgcaffe.tools.report.data import read_run
    from mgcaffe.tools.report.page import make_page
    from mgcaffe.tools.report.spans import read_timeline

    path = Path(flags.run)
    log = read_run(path)
    found = flags.timeline or _timeline_beside(path)
    timeline = read_timeline(Path(found)) if found else None
    page = make_page(log, timeline, plan=_read_plan(flags.plan), log=_read_text(flags.log))
    output = Path(flags.output) if flags.output else path.with_suffix(".html")
    write_output(output, page)
    print(f"{output}: {len(log.iterations)} iterations" + (f", timeline {found}" if found else ", without a timeline"))
    return EXIT_OK


def _timeline_beside(path: Path) -> str | None:
    for candidate in (path.with_suffix(".timeline.json"), path.with_name("timeline.json")):
        if candidate.is_file() and candidate.stat().st_size:
            return str(candidate)
    return None


def _read_plan(path: str | None) -> list[dict[str, object]]:
    from mgcaffe.tools.report.data import read_predictions

    return read_predictions(Path(path)) if path else []


def _read_text(path: str | None) -> str:
    from mgcaffe.tools.report.data import read_text

    return read_text(Path(path)) if path else ""
