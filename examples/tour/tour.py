"""Trains the digits net under several schedules on an emulated link, one after the other, and compares them.

    python examples/tour/tour.py [--ranks 2] [--schedules single,wfbp,mgwfbp,auto]

The link is that of the MG-WFBP authors' 16 GPUs joined by 10 Gbit/s Ethernet (HKBU-HPML/MG-WFBP): an all-reduce of M
bytes takes a + bM seconds, a = 0.908 ms and b = 0.740 ns per byte. `engine train --emulate_link` lets every all-reduce
take at least that long, also on one machine, where there would be little to hide.

Prints a table and writes a page with pictures (examples/tour/page.py). A run's JSON log, timeline and log file stay
beside the page.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import page

from mgcaffe.errors import EXIT_CANNOT_WRITE, EXIT_FAILED, EngineError
from mgcaffe.tools.report.data import RunRecord, read_run
from mgcaffe.tools.report.spans import read_timeline
from mgcaffe.tools.table import format_table

ROOT = Path(__file__).parents[2]
LINK = "a=9.08e-4,b=7.40e-10"
SCHEDULES = "single,wfbp,mgwfbp,auto"
_SHOWN_LOG_LINES = 12


@dataclass(frozen=True)
class Settings:
    """What the runs have in common: the output folder, the number of ranks, the link, and further flags."""

    folder: Path
    ranks: int
    link: str
    flags: tuple[str, ...]


def main(words: Sequence[str] | None = None) -> int:
    """Run the tour; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2, help="the number of ranks (2)")
    parser.add_argument("--schedules", default=SCHEDULES, help=f"what to compare ({SCHEDULES})")
    parser.add_argument("--emulate_link", default=LINK, metavar="a=A,b=B", help=f"the link ({LINK})")
    parser.add_argument("--iterations", type=int, help="the length of each run (the solver's max_iter, 500)")
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("results"), help="the folder")
    options = parser.parse_args(words)
    flags = (f"--max_iter={options.iterations}",) if options.iterations is not None else ()
    settings = Settings(options.output.resolve(), options.ranks, options.emulate_link, flags)
    try:
        results = [train(schedule, settings) for schedule in options.schedules.split(",")]
        print(f"\n{table(results)}\n\n{page.NOTE}\n")
        path = write_page(results, settings)
    except EngineError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("error: interrupted", file=sys.stderr)
        return EXIT_FAILED
    print(f"Picture: {path}")
    return 0


def train(schedule: str, settings: Settings) -> page.Result:
    """Train under one schedule and return what its JSON log says.

    Raises:
        EngineError: with the run's exit code, where it failed; the message holds the end of its log.
    """
    paths = {kind: settings.folder / f"{schedule}{kind}" for kind in (".json", ".timeline.json", ".log")}
    try:
        settings.folder.mkdir(parents=True, exist_ok=True)
        for path in paths.values():
            path.unlink(missing_ok=True)  # a JSON log is appended to
        log = paths[".log"].open("w", encoding="utf-8")
    except OSError as error:
        raise EngineError(f"cannot write to {settings.folder}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None
    command = [
        sys.executable, "-m", "mgcaffe.tools.main", "train", "-np", str(settings.ranks),
        "examples/tour/solver.prototxt", f"--schedule={schedule}", f"--emulate_link={settings.link}",
        f"--json_log={paths['.json']}", f"--timeline={paths['.timeline.json']}", *settings.flags,
    ]  # fmt: skip
    print(f"Training under schedule {schedule} on {settings.ranks} ranks ... ", end="", flush=True)
    with log:
        code = _run(command, log.fileno())
    if code != 0:
        print("failed")
        lines = paths[".log"].read_text(encoding="utf-8", errors="replace").splitlines()
        raise EngineError(
            f"the run under schedule {schedule} ended with exit code {code}; the end of {paths['.log']}:\n"
            + "\n".join(f"  {line}" for line in lines[-_SHOWN_LOG_LINES:]),
            exit_code=code if code > 0 else EXIT_FAILED,
        )
    result = measured(schedule, read_run(paths[".json"]), paths[".timeline.json"])
    print(f"{result.iteration_ms:.2f} ms per iteration")
    return result


def _run(command: Sequence[str], output: int) -> int:
    """Run a command to its end, also where Ctrl-C interrupts it: the launcher ends its ranks itself."""
    with subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.wait()
            raise


def measured(schedule: str, run: RunRecord, timeline: Path) -> page.Result:
    """Return the medians of a run over the iterations with its final plan."""
    plan = run.plan or {}
    predicted = plan.get("predicted")
    iteration, exposed = 1e3 * run.median("seconds"), run.median("comm_exposed_ms")
    return page.Result(
        schedule=schedule,
        plan=str(plan.get("plan") or "not found in so few iterations"),
        groups=plan.get("groups") or 0,
        iteration_ms=iteration,
        hidden_ms=run.median("comm_hidden_ms"),
        exposed_ms=exposed,
        predicted_ms=iteration - exposed + float(predicted["exposed_ms"]) if predicted else None,
        final_loss=run.iterations[-1].get("loss"),
        timeline=read_timeline(timeline) if timeline.is_file() and timeline.stat().st_size else None,
    )


def table(results: Sequence[page.Result]) -> str:
    """Return the comparison as text, one line for each schedule."""
    headers = ("schedule", "groups", "ms per iteration", "predicted", "communication", "hidden", "final loss")
    rows = [
        (
            result.schedule,
            str(result.groups) if result.groups else "-",
            f"{result.iteration_ms:.2f}",
            f"{result.predicted_ms:.2f}" if result.predicted_ms is not None else "-",
            f"{result.hidden_ms + result.exposed_ms:.2f} ms",
            f"{100 * result.hidden_share:.0f} %",
            f"{result.final_loss:.6g}" if result.final_loss is not None else "not finite",
        )
        for result in results
    ]
    return format_table(headers, rows, right=headers[1:])


def write_page(results: Sequence[page.Result], settings: Settings) -> Path:
    """Write the page and return its path.

    Raises:
        EngineError: with exit code 73, where it cannot be written.
    """
    path = settings.folder / "tour.html"
    try:
        path.write_text(page.make_page(results, settings.link, settings.ranks), encoding="utf-8")
    except OSError as error:
        raise EngineError(f"cannot write {path}: {error.strerror}", exit_code=EXIT_CANNOT_WRITE) from None
    return path


if __name__ == "__main__":
    sys.exit(main())
