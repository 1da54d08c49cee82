"""Schedules on a link that this machine doesn't have: real reducer, real plans, real MPI, slept backward pass.

    mpirun -n 2 --bind-to none python benchmarks/replay.py

The backward pass of a trace is slept, layer by layer, so that two cores behave like GPUs, and every all-reduce
takes at least a + bM seconds (`--emulate_link`; the rest of it is slept as well). Sums are really taken, over MPI,
by the reducer that trains. Where this machine's own all-reduce is slower than the link, that would show; so trace, a
and b are multiplied by K until the emulated cost is at least three times the real one at every size. K is measured,
and stands in the table.

All schedules run in turn, round by round, and the median over the rounds counts, of the slowest rank's seconds from
the start of the backward pass until all gradients are means. Predictions are those of the plan for the trace and
a + bM. `auto` measures, plans and tries first, as in training; then its choice runs in the same rounds.

What was hidden is shown in two ways, both over what the plan hides: the part of every group's all-reduce that ran
beside the backward pass, by the reducer's records, times what the plan says that it takes, but no more than the plan
hides of it; and what the clock leaves of the plan's communication for the time after the backward pass, where every
delay of an all-reduce counts as not hidden.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy

from mgcaffe.comm import AffineCost, Communicator, MergedAllReduce, Plan, Trace, connect, make_plan, read_trace
from mgcaffe.comm.exchange.comm_report import CommReport
from mgcaffe.comm.exchange.emulation import parse_link, sleep_until
from mgcaffe.comm.exchange.sums.base import TransferSettings
from mgcaffe.comm.planning.cost import AllReduceCosts
from mgcaffe.comm.planning.schedules import SCHEDULES, predict_groups
from mgcaffe.comm.tuning.calibration import (
    CALIBRATION_BUDGET_S,
    agree_least_times,
    agree_times,
    measure_allreduce_costs,
)
from mgcaffe.comm.tuning.decision import Decision
from mgcaffe.comm.tuning.settings import AUTO, TunerSettings, TunerSteps
from mgcaffe.comm.tuning.tuner import Tuner

TRACE = Path(__file__).parents[1] / "tests/golden/traces/googlenet_k80_batch64.csv"
LINKS = {"10GbE, 16 workers": "a=9.08e-4,b=7.40e-10", "56Gb, 16 workers": "a=2.358e-4,b=4.059e-10"}
TIMES_REAL = 3.0
CALIBRATION_ITERATIONS = 10


@dataclass
class Row:
    """One schedule on one link, in seconds."""

    link: str
    backward_scale: float
    time_scale: float
    schedule: str
    groups: int
    backward: float
    predicted: float
    measured: float
    hidden_by_records: float | None
    hidden_by_clock: float | None
    scatter: float

    @property
    def deviation(self) -> float:
        """Measured over predicted, less one."""
        return self.measured / self.predicted - 1


class Replay:
    """A trace on an emulated link.

    Args:
        ranks: the communicator.
        trace: one worker's iteration.
        link: what an all-reduce costs.
        flat: the gradients, whose values don't matter.
        time_scale: K, by which trace and link are multiplied already.
    """

    def __init__(
        self, ranks: Communicator, trace: Trace, link: AffineCost, flat: numpy.ndarray, time_scale: float
    ) -> None:
        self._ranks = ranks
        self._time_scale = time_scale
        self._link = link
        self._flat = flat
        self._segments, self._ready = trace.segments()
        self.backward = trace.backward_s
        self._transfer = TransferSettings(link=link)
        self._sync = MergedAllReduce(ranks, self.plan("single"), transfer=self._transfer)
        self._sync.start(flat, self._segments)
        self._is_outdated = False
        self._decision: Decision | None = None
        self._costs: AllReduceCosts | None = None

    def plan(self, schedule: str) -> Plan:
        """Return the plan of a schedule for the trace and a + bM."""
        return make_plan(
            schedule, self._segments, self._ready, self._link, element_bytes=4, backward_end=self.backward
        )  # fmt: skip

    def predicted(self, plan: Plan) -> Plan:
        """Return a plan of other origin with the times for the trace and a + bM."""
        ranges = [(group.first_segment, group.last_segment) for group in plan.groups]
        groups = predict_groups(ranges, self._segments, self._ready, self._link, 4)
        return Plan(plan.schedule, plan.layers, groups, self.backward, plan.blocking)

    def find_auto(self, steps: TunerSteps | None = None) -> tuple[Decision, int]:
        """Let `auto` measure, plan and try; return what it chose, and how many iterations that took."""
        settings = TunerSettings(AUTO, 4, CALIBRATION_ITERATIONS, steps=steps or TunerSteps())
        self.tuner = Tuner(self._ranks, self._sync, self._segments, settings, self._measure, self)
        self.tuner.search()
        return self.finish_search()

    def finish_search(self) -> tuple[Decision, int]:
        """Run iterations until `auto` has chosen; return its choice, and how many iterations that took."""
        self._decision = None
        iterations = 0
        while self._decision is None:
            laps, report = self._iterate()
            self.tuner.iteration_done(laps, report)
            iterations += 1
        return self._decision, iterations

    def plan_decided(self, decision: Decision) -> None:
        """Keep what `auto` has found."""
        self._decision = decision

    def plan_outdated(self, exposed: float, expected: float) -> None:
        """Take note that the drift watch has begun another search."""
        self._is_outdated = True

    def notice_drift(self, limit: int) -> int | None:
        """Run at most `limit` iterations until the drift watch searches again; return how many, None: it did not."""
        self._is_outdated = False
        for iteration in range(1, limit + 1):
            self.tuner.iteration_done(*self._iterate())
            if self._is_outdated:
                return iteration
        return None

    def seconds(self, plan: Plan) -> tuple[float, float]:
        """Return one iteration under a plan, and how much of the plan's communication ran beside its backward pass."""
        self._sync.set_plan(plan)
        laps, report = self._iterate()
        hidden = 0.0
        for times in report.groups:
            group = plan.groups[times.group]
            share = (min(times.end, report.backward_end) - times.start) / (times.end - times.start)
            planned = max(0.0, min(group.end_at, self.backward) - group.start_at)
            hidden += min(max(0.0, share) * (group.end_at - group.start_at), planned)
        return sum(laps), hidden

    def close(self) -> None:
        """End the reducer."""
        self._sync.close()

    def _measure(self, anew: bool) -> AllReduceCosts:
        """Return the costs of an all-reduce, which are the same for every search on this link."""
        if anew or self._costs is None:
            budget_s = CALIBRATION_BUDGET_S * self._time_scale  # time is scaled, so is what may be spent
            self._costs = measure_allreduce_costs(
                self._ranks, self._flat, transfer=self._transfer, segments=self._segments, budget_s=budget_s
            )  # fmt: skip
        return self._costs

    def _iterate(self) -> tuple[list[float], CommReport]:
        """Sleep through a backward pass; return the laps that `Profiler.record` takes, and the report."""
        self._ranks.barrier()
        self._sync.begin_iteration()
        began = time.perf_counter()
        marks = [began]
        for index in reversed(range(len(self._segments))):
            sleep_until(began + self._ready[index])
            marks.append(time.perf_counter())
            self._sync.gradients_ready(index)
        sleep_until(began + self.backward)
        marks.append(time.perf_counter())
        report = self._sync.wait()
        marks.append(time.perf_counter())
        return [after - before for before, after in pairwise(marks)], report


def find_time_scale(real: AllReduceCosts, link: AffineCost) -> float:
    """Return the least K (in tenths) by which an emulated all-reduce takes three times the real one, at any size."""
    curves = (real.polled, real.busy_polled, real.blocking)
    ratio = max(TIMES_REAL * seconds / link(size) for curve in curves for size, seconds in curve.points)
    return max(1.0, float(numpy.ceil(10 * ratio)) / 10)


def run(
    ranks: Communicator, trace: Trace, link: tuple[str, AffineCost], scales: tuple[float, float], rounds: int
) -> list[Row]:
    """Run all schedules on one link, backward times multiplied by the first scale and everything by the second."""
    name, cost = link
    backward_scale, time_scale = scales
    flat = numpy.zeros(trace.elements, dtype=numpy.float32)
    scaled = AffineCost(time_scale * cost.a, time_scale * cost.b)
    replay = Replay(ranks, trace.scaled(backward_scale * time_scale), scaled, flat, time_scale)
    plans = {schedule: replay.plan(schedule) for schedule in SCHEDULES}
    decision, _ = replay.find_auto()
    plans[AUTO] = replay.predicted(decision.plan)
    seconds: dict[str, list[float]] = {schedule: [] for schedule in plans}
    hidden: dict[str, list[float]] = {schedule: [] for schedule in plans}
    names = list(plans)
    for number in range(rounds):
        for schedule in names if number % 2 == 0 else names[::-1]:
            whole, beside = replay.seconds(plans[schedule])
            seconds[schedule].append(whole)
            hidden[schedule].append(beside)
    rows = []
    for schedule, plan in plans.items():
        values = agree_times(ranks, seconds[schedule])
        measured = statistics.median(values)
        scatter = 1.4826 * statistics.median(abs(value - measured) for value in values) / measured
        label = f"{AUTO} ({decision.plan.schedule.partition(': ')[2]})" if schedule == AUTO else schedule
        # The rank that hides least counts.
        least = statistics.median(agree_least_times(ranks, hidden[schedule]))
        shares = hidden_shares(plan, least, measured - replay.backward)
        rows.append(
            Row(name, backward_scale, time_scale, label, len(plan.groups), replay.backward,
                max(plan.end, replay.backward), measured, *shares, scatter)
        )  # fmt: skip
    replay.close()
    return rows


def hidden_shares(plan: Plan, beside: float, after: float) -> tuple[float | None, float | None]:
    """Return how much of what a plan hides was hidden: by the records, and by the clock.

    Args:
        plan: as predicted.
        beside: the seconds of its communication that ran beside the backward pass.
        after: the seconds that the iteration went on after it.
    """
    hideable = plan.busy - plan.exposed
    if hideable <= 1e-6:
        return None, None
    return beside / hideable, (plan.busy - after) / hideable


def table(rows: Sequence[Row]) -> str:
    """Return one link and one scale, as Markdown."""
    first = rows[0]
    lines = [
        f"{first.link}, backward x {first.backward_scale:g} ({1e3 * first.backward / first.time_scale:.1f} ms);"
        f" emulated, K = {first.time_scale:g}; ms are divided by K",
        "",
        "| schedule | groups | predicted ms | measured ms | deviation | scatter | hidden of hideable | by the clock |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        shares = (row.hidden_by_records, row.hidden_by_clock)
        hidden = " | ".join("-" if share is None else f"{100 * share:.1f} %" for share in shares)
        lines.append(
            f"| {row.schedule} | {row.groups} | {1e3 * row.predicted / row.time_scale:.2f} |"
            f" {1e3 * row.measured / row.time_scale:.2f} | {100 * row.deviation:+.1f} % | {100 * row.scatter:.1f} % |"
            f" {hidden} |"
        )
    return "\n".join([*lines, "", verdict(rows), ""])


def verdict(rows: Sequence[Row]) -> str:
    """Return whether predictions and order hold, and whether anything beats `optimal` and `auto`."""
    worst = max(rows, key=lambda row: abs(row.deviation))
    swapped = [
        f"{slow.schedule} before {quick.schedule}"
        for quick in rows
        for slow in rows
        if quick.predicted < slow.predicted / 1.01 and quick.measured > slow.measured
    ]
    best = min(row.measured for row in rows)
    behind = {row.schedule: row.measured / best - 1 for row in rows if row.schedule.startswith(("optimal", AUTO))}
    texts = ", ".join(f"{name} {100 * value:.1f} %" for name, value in behind.items())
    return (
        f"Largest deviation {100 * worst.deviation:+.1f} % ({worst.schedule}). Order as predicted: "
        f"{'yes' if not swapped else 'no, ' + '; '.join(swapped)}. Behind the fastest: {texts}."
    )


def parse() -> argparse.Namespace:
    """Return the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", default=str(TRACE), help="backward times (CSV)")
    parser.add_argument("--emulate_link", action="append", default=[], help="a=SECONDS,b=SECONDS_PER_BYTE; repeatable")
    parser.add_argument("--backward_scale", default="1,0.25,0.1", help="backward times are multiplied by each of these")
    parser.add_argument(
        "--time_scale",
        type=float,
        default=None,
        help="K; by default the least by which the emulated link takes three times the real one",
    )
    parser.add_argument("--rounds", type=int, default=7, help="iterations of each schedule")
    parser.add_argument("--json", help="write all rows to this file")
    return parser.parse_args()


def main() -> None:
    """Run everything and print the tables on rank 0."""
    arguments = parse()
    ranks = connect()
    trace = read_trace(arguments.trace)
    links = {text: text for text in arguments.emulate_link} or LINKS
    real = measure_allreduce_costs(ranks, numpy.zeros(trace.elements, dtype=numpy.float32), budget_s=9.0)
    rows: list[Row] = []
    for name, text in links.items():
        link = parse_link(text)
        scale = arguments.time_scale or find_time_scale(real, link)
        if ranks.rank == 0:
            print(f"{name}: emulated with {text}, K = {scale:g}", file=sys.stderr, flush=True)
        for backward_scale in map(float, arguments.backward_scale.split(",")):
            found = run(ranks, trace, (name, link), (backward_scale, scale), arguments.rounds)
            rows += found
            if ranks.rank == 0:
                print(table(found), flush=True)
    if arguments.json and ranks.rank == 0:
        Path(arguments.json).write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
