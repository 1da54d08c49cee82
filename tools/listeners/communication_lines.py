"""What a user is shown of communication: the plan, what was hidden, and how a run ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mgcaffe.engine.data.stages import NAMES, bottleneck, share_of
from mgcaffe.solvers.events import Finished, OutputValue, PlanChosen, Synchronized
from mgcaffe.tools.listeners.glog import number
from mgcaffe.tools.table import format_bytes, format_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mgcaffe.comm.replicas.figures import SyncFigures
    from mgcaffe.comm.tables.figures import LookUpFigures
    from mgcaffe.comm.tuning.decision import Decision

# From here on the reason for a plan mentions contention.
_MUCH_CONTENTION = 0.1
# Above this percentage of an iteration, what data are waited for is said.
_MUCH_WAITING = 5.0
# A line holds so many scores: a net whose scores are outputs of a test, as one for segmentation, has thousands.
_MOST_SCORES = 100


def comm_line(hidden_s: float, exposed_s: float, iterations: int) -> str:
    """Return one line on the communication of so many iterations; times are totals in seconds."""
    total = hidden_s + exposed_s
    if total <= 0:
        return "Communication: none"
    each = 1e3 / max(1, iterations)
    return (
        f"Communication: {hidden_s * each:.3f} ms hidden, {exposed_s * each:.3f} ms exposed per iteration; "
        f"{100 * hidden_s / total:.1f} % hidden"
    )


def data_line(wait_s: float, seconds: float, iterations: int, work_s: Mapping[str, float]) -> str:
    """Return one line on how long so many iterations waited for their data, and where it matters, for what.

    Args:
        wait_s, seconds: totals of the iterations.
        iterations: how many they were.
        work_s: what making their batches took, by stage.
    """
    share = 100 * wait_s / seconds if seconds > 0 else 0.0
    slowest = bottleneck(work_s) if share > _MUCH_WAITING else None
    why = f"; {NAMES[slowest]} takes {share_of(work_s, slowest):.0f} % of making a batch" if slowest else ""
    return f"Data: {1e3 * wait_s / max(1, iterations):.3f} ms waited per iteration; {share:.1f} % of its time{why}"


def sync_text(figures: SyncFigures) -> str:
    """Return what keeping replicas together has come to, in a line."""
    count = figures.synchronizations
    if not count:
        return "no synchronizations"
    text = f"{count} synchronization{'s' * (count != 1)}, gap {figures.gap:.2f} iterations"
    times = f"{1e3 * figures.seconds / count:.3f} ms ({1e3 * figures.processor_s / count:.3f} ms of processor time)"
    text += f", {times} and {format_bytes(figures.bytes / count)} each, distance {number(figures.distance)}"
    if figures.exposed_s and figures.iterations:
        text += f", {1e3 * figures.exposed_s / figures.iterations:.3f} ms waited per iteration"
    return text


def trainers_text(event: Synchronized) -> str:
    """`5285 examples/s in all, trainers at iterations 940 to 1000`."""
    first, last = min(event.iterations), max(event.iterations)
    uneven = f", trainers at iterations {first} to {last}" if first < last else ""
    return f"{number(event.examples_per_s)} examples/s in all{uneven}"


def look_up_line(figures: LookUpFigures) -> str:
    """Return one line on the look-ups on embedding servers."""
    each = 1e3 / max(1, figures.look_ups)
    return (
        f"Look-ups: {figures.look_ups} batches, {figures.latency_s * each:.3f} ms each, {figures.waited_s * each:.3f}"
        f" ms of them waited for; {format_bytes(figures.sent)} sent, {format_bytes(figures.received)} received"
    )


def plan_lines(event: PlanChosen) -> list[str]:
    """Return what was decided about merging: what was measured and tried, how many groups, their predicted times."""
    plan, decision = event.plan, event.decision
    if plan is None or not plan.groups:
        return []
    size = sum(group.bytes for group in plan.groups) / 2**20
    merged = f"{len(plan.groups)} group{'s' * (len(plan.groups) != 1)} from {plan.layers} layers, {size:.2f} MiB"
    expected = ", the last of them beside the next forward pass" if plan.overlaps_forward else ""
    if plan.backward_end > 0:
        expected += (
            f"; backward {plan.backward_end * 1e3:.3f} ms, communication {plan.busy * 1e3:.3f} ms, "
            f"{plan.exposed * 1e3:.3f} ms of it expected to be exposed"
        )
        if decision:
            source = "its trials" if decision.predicted_from == "trials" else "the calibration"
            expected += f" (predicted from {source})"
    measured = [cost_text(decision.costs.busy_polled), *_contention_lines(decision)] if decision else []
    tried = trial_lines(decision) if decision else []
    return [*measured, *tried, f"Schedule {plan.schedule if decision else event.schedule}: {merged}{expected}"]


def cost_text(cost: Any) -> str:
    """Return the measured curve in a line: how large, the straight line through it, and how far that is off."""
    from mgcaffe.comm.planning.cost import line_error

    a, b, fit = cost.affine()
    mean, worst, where = line_error(cost)
    return (
        f"All-reduce: {len(cost.points)} sizes from {format_bytes(cost.points[0][0])} to "
        f"{format_bytes(cost.points[-1][0])}; the line {a * 1e6:.4g} us + {b * 1e9:.4g} ns per byte "
        f"(R2 {fit:.3f}) is off by {100 * mean:.0f} % on average, {100 * worst:.0f} % at {format_bytes(where)}"
    )


def _contention_lines(decision: Decision) -> list[str]:
    """Return what communication beside the backward pass costs it."""
    from mgcaffe.comm.planning.prediction import MIN_RELATIVE_SPEED

    shares = []
    for way in decision.channels:
        # The slowdown that is measured ends there: MIN_RELATIVE_SPEED.
        least = "at least " if way.slowdown >= 1 - MIN_RELATIVE_SPEED else ""
        shares.append(f"{least}{1e3 * way.slowdown:.0f} ms ({calls(way.blocking)} calls)")
    return [f"Contention: a second of communication beside the backward pass adds {' or '.join(shares)} to it"]


def trial_lines(decision: Decision) -> list[str]:
    """Return the plans that `auto` has tried, the chosen one first, and why it was chosen."""
    if not decision.trials:
        return []
    rows = []
    for trial in decision.trials:
        plan = trial.candidate.plan
        times = [f"{1e3 * seconds:.2f} ms" for seconds in (trial.candidate.predicted, trial.median, trial.exposed)]
        label, groups = trial.candidate.label, str(len(plan.groups))
        rows.append((label, groups, calls(plan.blocking), *times, str(len(trial.seconds))))
    headers = ("plan", "groups", "calls", "predicted", "measured", "exposed", "iterations")
    table = format_table(headers, rows, right=("groups", *headers[3:]))
    return [
        f"Tried {len(rows)} plans in turn; backward pass and waiting for communication, slowest rank:",
        *table.splitlines(),
        _reason(decision),
    ]


def _reason(decision: Decision) -> str:
    """Why the chosen plan is the fastest, in a sentence."""
    best = decision.trials[0]
    plan = best.candidate.plan
    fastest = min(trial.median for trial in decision.trials)
    lead = "the fastest" if best.median <= fastest else "within noise of the fastest"
    text = f"Chosen: {best.candidate.label} with {calls(plan.blocking)} calls, {lead}"
    if len(plan.groups) > 1:
        hidden = max(0.0, plan.busy - best.exposed)
        return f"{text}; of {1e3 * plan.busy:.2f} ms of communication {1e3 * hidden:.2f} ms are hidden"
    slowdown = max(way.slowdown for way in decision.channels)
    share = best.exposed / best.median if best.median > 0 else 0.0
    why = f"communication after the backward pass is {100 * share:.1f} % of the time"
    if slowdown > _MUCH_CONTENTION:
        why += f", and beside it would take up to {100 * slowdown:.0f} % of what it hides from the computation"
    return f"{text}; {why}"


def calls(blocking: bool) -> str:
    """Return how the reducer waits for its peers."""
    return "blocking" if blocking else "polled"


def closing_lines(event: Finished, ranks: int, iterations: int) -> list[str]:
    """Return how a run ended: scores, communication, and where the snapshot lies.

    Args:
        event: the end.
        ranks: how many ranks trained.
        iterations: how many updates this run made.
    """
    earlier = event.tested_at not in (None, event.iteration)
    when = f", at iteration {event.tested_at} (the last test)" if earlier else ""
    lines = [f"Test net #{index}{when}: {scores_text(scores)}" for index, scores in enumerate(event.scores) if scores]
    lines += [
        f"Test net #{index}, mean of all replicas: {scores_text(scores)}"
        for index, scores in enumerate(event.mean_scores)
        if scores
    ]
    if event.synchronization is not None:
        trained = ", ".join(map(str, event.iterations))
        lines.append(f"Replicas: {sync_text(event.synchronization)}; iterations of the trainers {trained}")
    elif ranks > 1:
        lines.append(comm_line(event.comm_hidden_s, event.comm_exposed_s, iterations))
    if event.seconds > 0 and event.images:
        lines.append(f"Speed: {event.images / event.seconds:.1f} images/s over {event.seconds:.1f} s")
    if event.snapshot:
        lines.append(f"Snapshot: {event.snapshot} (go on with --snapshot={event.snapshot})")
    else:
        lines.append("Snapshot: none was written in this run")
    return lines


def scores_text(scores: tuple[OutputValue, ...]) -> str:
    """`accuracy = 0.98, loss = 0.07`; of more than `_MOST_SCORES` the first ones, and how many there are besides."""
    shown = [f"{score.name} = {number(score.value)}" for score in scores[:_MOST_SCORES]]
    if len(scores) > _MOST_SCORES:
        shown.append(f"and {len(scores) - _MOST_SCORES} more values")
    return ", ".join(shown)
