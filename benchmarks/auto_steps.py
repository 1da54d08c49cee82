"""What each step of `auto` gives: searches with all steps, and without each of them, compared in one run.

    mpirun -n 2 --bind-to none python benchmarks/auto_steps.py --quick     # a small net, emulated link: minutes
    mpirun -n 2 --bind-to none python benchmarks/auto_steps.py             # GoogLeNet's trace on emulated links
    mpirun -n 2 --bind-to none python benchmarks/auto_steps.py --train cifar10_full   # a real net, on this machine
    sudo python benchmarks/auto_steps.py --shaped                          # real nets, hosts joined by a shaped link

`auto` searches once with all steps and once without each (`comm.tuning.settings.TunerSteps`), always from the same
measured costs of an all-reduce. Then the plans that were found run in turn, round by round, in alternating order. All
of that is repeated. The table shows for each step that was left out:

- the iteration time of the plan found (on the emulated link without a forward pass and an update), and the ratio to
  that of the plan found with all steps: of each search the median over rounds of the ratio within a round, of these the
  median and the range. Below 1 the search was better off without the step; where the range has 1 in it, the step shows
  nothing. `same` counts the searches that came to the same plan: then the ratio shows nothing but the noise;
- how far off the prediction of the plan was, and how many iterations the search took.

On the emulated link (`replay.py`) the backward pass is slept, so that the cores are free: it shows no contention, and
there is no forward pass to overlap. On this machine, and on the shaped network (`distributed.py`, needs root),
everything is real. The drift watch changes no search: for its row the emulated link becomes several times slower
after one, and the plan kept without the watch is compared with the one that the watch leads to; the iterations are
those until the new plan.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import distributed
import numpy
import replay
from auto_steps_sides import EmulatedSide, Side, TrainedSide
from shaped_network import CONGESTION_CONTROL, NetworkUnavailable, ShapedNetwork

from mgcaffe.comm import Plan, Trace, connect, read_trace
from mgcaffe.comm.exchange.emulation import parse_link
from mgcaffe.comm.planning.trace import TraceLayer
from mgcaffe.comm.tuning.calibration import agree_times, measure_allreduce_costs
from mgcaffe.comm.tuning.drift import WINDOW
from mgcaffe.comm.tuning.settings import TunerSteps

ALL = "all steps"
DRIFT = "drift_watch"
STEPS = [each.name for each in fields(TunerSteps)]
"""The steps that can be left out, each alone or several together (`trials+second_stage`)."""
SLOWER = 4.0
"""The factor by which the emulated link becomes slower for the drift watch."""
QUICK_LINK = "a=2e-3,b=1e-8"
"""Slow enough for any machine, so that the quick form needs no time scale."""


@dataclass
class Row:
    """What came of all searches without a step; of each round its seconds, of each search the rest.

    Attributes:
        step: the step that was left out.
        labels: the plans that were found.
        same: whether each is the plan that was found with all steps.
        seconds: the slowest rank's iteration times.
        ratios: the same over those of the plan found with all steps, in the same rounds.
        errors: measured over predicted, less one.
        iterations: how many each search took.
    """

    step: str
    labels: list[str] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)

    def ratios_of_searches(self) -> list[float]:
        """Return the median ratio of each search's rounds."""
        rounds = len(self.ratios) // len(self.labels)
        return [statistics.median(self.ratios[start : start + rounds]) for start in range(0, len(self.ratios), rounds)]


def without(name: str) -> TunerSteps:
    """Return what is searched with where a step is left out, or several joined by `+`."""
    return TunerSteps() if name == ALL else replace(TunerSteps(), **dict.fromkeys(name.split("+"), False))


def compare(side: Side, steps: Sequence[str], rounds: int, repeats: int) -> list[Row]:
    """Search with all steps and without each of some, and run what was found; return a row for each search."""
    rows = {name: Row(name) for name in (ALL, *steps) if name != DRIFT}
    for repeat in range(repeats):
        order = list(rows) if repeat % 2 == 0 else list(rows)[::-1]
        found = {}
        for name in order:
            found[name] = side.search(without(name))
            report(side, f"{name}: {found[name][0].plan.schedule}, {found[name][1]} iterations")
        seconds = run_in_turn(side, {name: decision.plan for name, (decision, _) in found.items()}, rounds)
        for name, row in rows.items():
            decision, iterations = found[name]
            row.labels.append(decision.plan.schedule.partition(": ")[2])
            row.same.append(decision.plan.hash == found[ALL][0].plan.hash)
            row.iterations.append(iterations)
            row.seconds += seconds[name]
            row.ratios += [mine / other for mine, other in zip(seconds[name], seconds[ALL], strict=True)]
            row.errors.append(statistics.median(seconds[name]) / side.predicted(decision) - 1)
    return list(rows.values())


def compare_after_drift(side: EmulatedSide, rounds: int) -> Row:
    """Make the link slower after a search, and compare the plan kept with the one that the drift watch leads to.

    Where times were so uncertain that the watch tolerates the slower link, the plan stays.
    """
    kept, _ = side.search(without(ALL))
    side.link.factor = SLOWER
    found, iterations = kept, 4 * WINDOW
    if (noticed := side.notice_drift(iterations)) is not None:
        found, searched = side.finish_search()
        iterations = noticed + searched
    seconds = run_in_turn(side, {"kept": kept.plan, "found": found.plan}, rounds)
    side.link.factor = 1.0
    ratios = [mine / other for mine, other in zip(seconds["kept"], seconds["found"], strict=True)]
    error = statistics.median(seconds["kept"]) / side.predicted(kept) - 1
    label, same = kept.plan.schedule.partition(": ")[2], kept.plan.hash == found.plan.hash
    return Row(
        f"{DRIFT} (link {SLOWER:g} times slower)", [label], [same], seconds["kept"], ratios, [error], [iterations]
    )


def run_in_turn(side: Side, plans: dict[str, Plan], rounds: int) -> dict[str, list[float]]:
    """Return the slowest rank's seconds of `rounds` iterations by each plan, run in alternating order."""
    seconds: dict[str, list[float]] = {name: [] for name in plans}
    for turn in range(rounds):
        for name in plans if turn % 2 == 0 else list(plans)[::-1]:
            seconds[name].append(side.iterate(plans[name]))
    return {name: agree_times(side.ranks, values) for name, values in seconds.items()}


def table(title: str, rows: Sequence[Row], time_scale: float = 1.0) -> str:
    """Return the rows as Markdown; milliseconds are divided by the time scale."""
    lines = [
        title,
        "",
        "| left out | iteration, ms | ratio | range | same | prediction off by | iterations of the search | plan |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratios = row.ratios_of_searches()
        error = statistics.median(abs(error) for error in row.errors)
        seconds = statistics.median(row.seconds) / time_scale
        lines.append(
            f"| {row.step} | {1e3 * seconds:.2f} | {statistics.median(ratios):.3f} |"
            f" {min(ratios):.3f} to {max(ratios):.3f} | {sum(row.same)}/{len(row.same)} | {100 * error:.1f} % |"
            f" {statistics.median(row.iterations):g} | {'; '.join(dict.fromkeys(row.labels))} |"
        )
    return "\n".join([*lines, ""])


def report(side: Side, text: str) -> None:
    """Print progress on rank 0."""
    if side.ranks.rank == 0:
        print(text, file=sys.stderr, flush=True)


def quick_trace() -> Trace:
    """Return a net of 20 layers of 2 ms each, whose upper layers have the most gradients: a million in all."""
    return Trace(tuple(TraceLayer(f"layer {index}", 5_000 * (index + 1), 2e-3) for index in range(20)))


def run_emulated(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare on the emulated links; all ranks call it."""
    ranks = connect()
    trace = quick_trace() if options.quick else read_trace(options.trace)
    links = {text: text for text in options.emulate_link} or (
        {QUICK_LINK: QUICK_LINK} if options.quick else replay.LINKS
    )
    results = []
    for name, text in links.items():
        link = parse_link(text)
        scale = options.time_scale
        if scale is None:
            flat = numpy.zeros(trace.elements, dtype=numpy.float32)
            scale = replay.find_time_scale(measure_allreduce_costs(ranks, flat), link)
        side = EmulatedSide(ranks, trace, link, scale)
        rows = compare(side, options.steps, options.rounds, options.repeats)
        if DRIFT in options.steps:
            rows.append(compare_after_drift(side, options.rounds))
        side.close()
        results.append(
            {"title": f"{name}, emulated, K = {scale:g} (ms are divided by K)", "scale": scale, "rows": rows}
        )
        if ranks.rank == 0:
            print(table(results[-1]["title"], rows, scale), flush=True)
    return results if ranks.rank == 0 else []


def run_training(model: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare while a real net is trained; all ranks call it."""
    from mgcaffe.tools.running.process import speed_up_memory

    speed_up_memory()
    side = TrainedSide(model)
    title = options.title or f"{model}, {side.ranks.size} ranks on this machine"
    rows = compare(side, options.steps, options.rounds, options.repeats)
    if side.ranks.rank == 0:
        print(table(title, rows), flush=True)
    return [{"title": title, "rows": rows}] if side.ranks.rank == 0 else []


def run_shaped(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Start a job for each network and model, which prints its table."""
    results = []
    for link in options.links:
        for model in options.models:
            with (
                ShapedNetwork(options.hosts, link, CONGESTION_CONTROL) as network,
                tempfile.TemporaryDirectory() as folder,
            ):
                file = Path(folder) / "rows.json"
                worker = [sys.executable, __file__, "--train", model, "--json", str(file)]
                worker += ["--title", f"{model}, {options.hosts} hosts at {link}"]
                worker += ["--rounds", str(options.rounds), "--repeats", str(options.repeats)]
                worker += ["--steps", *options.steps]
                distributed.run_mpi(network, worker, f"{model}, {link}")
                (found,) = json.loads(file.read_text())
            results.append({**found, "rows": [Row(**row) for row in found["rows"]]})
    return results


def step_names(text: str) -> str:
    """Check the names of steps that are joined by `+`."""
    if unknown := sorted(set(text.split("+")) - set(STEPS)):
        raise argparse.ArgumentTypeError(f"there is no step {unknown[0]}")
    return text


def parse() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small net on one emulated link")
    parser.add_argument("--trace", default=str(replay.TRACE), help="backward times (CSV) for the emulated links")
    parser.add_argument("--emulate_link", action="append", default=[], help="a=SECONDS,b=SECONDS_PER_BYTE; repeatable")
    parser.add_argument(
        "--time_scale",
        type=float,
        help="K of replay.py; by default the least by which the emulated link takes three times the real one",
    )
    parser.add_argument("--train", choices=list(distributed.SIZES), help="train this net instead")
    parser.add_argument("--shaped", action="store_true", help="train on shaped networks instead; needs root")
    parser.add_argument("--models", nargs="+", choices=list(distributed.SIZES), default=["cifar10_full", "googlenet"])
    parser.add_argument("--links", nargs="+", default=["1gbit"], metavar="RATE", help="as tc writes them")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7, help="iterations of each plan after each set of searches")
    parser.add_argument("--repeats", type=int, default=None, help="searches without each step (3; with --quick 1)")
    parser.add_argument(
        "--steps",
        nargs="+",
        type=step_names,
        default=STEPS,
        metavar="STEP",
        help=f"which to leave out in turn: {', '.join(STEPS)}, or several joined by +",
    )
    parser.add_argument("--json", metavar="FILE", help="write everything that was measured")
    parser.add_argument("--title", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.repeats is None:
        options.repeats = 1 if options.quick else 3
    if options.quick and options.time_scale is None:
        options.time_scale = 1.0
    return options


def main() -> None:
    """Run the comparison that the command line asks for."""
    options = parse()
    try:
        if options.train:
            results = run_training(options.train, options)
        else:
            results = run_shaped(options) if options.shaped else run_emulated(options)
    except NetworkUnavailable as error:
        sys.exit(f"auto_steps.py: {error}")
    if options.json and results:
        rows = [{**result, "rows": [asdict(row) for row in result["rows"]]} for result in results]
        Path(options.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
