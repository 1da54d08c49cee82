"""What a user is told about communication: the plan, what was hidden, and how a run ended."""

from __future__ import annotations

from typing import Any

from mgcaffe.solvers.events import Finished, OutputValue
from mgcaffe.tools.glog import number


def comm_line(hidden_s: float, exposed_s: float, iterations: int) -> str:
    """One line on the communication of so many iterations; times are totals in seconds."""
    total = hidden_s + exposed_s
    if total <= 0:
        return "Communication: none"
    each = 1e3 / max(1, iterations)
    return (
        f"Communication: {hidden_s * each:.3f} ms hidden, {exposed_s * each:.3f} ms exposed an iteration; "
        f"{100 * hidden_s / total:.1f} % hidden"
    )


def plan_lines(schedule: str, plan: Any) -> list[str]:
    """What was decided about merging: how many groups, and how long the plan expects them to take."""
    if plan is None or not plan.groups:
        return []
    size = sum(group.bytes for group in plan.groups) / 2**20
    merged = f"{len(plan.groups)} group{'s' * (len(plan.groups) != 1)} from {plan.layers} layers, {size:.2f} MiB"
    expected = ""
    if plan.backward_end > 0:
        expected = (
            f"; backward {plan.backward_end * 1e3:.3f} ms, communication {plan.busy * 1e3:.3f} ms, "
            f"{plan.exposed * 1e3:.3f} ms of it expected to be exposed"
        )
    return [f"Schedule {schedule}: {merged}{expected}"]


def closing_lines(event: Finished, ranks: int, iterations: int) -> list[str]:
    """How a run ended: scores, communication, and where the snapshot lies.

    Args:
        event: the end.
        ranks: how many ranks trained.
        iterations: how many updates this run made.
    """
    lines = [f"Test net #{index}: {scores_text(scores)}" for index, scores in enumerate(event.scores) if scores]
    if ranks > 1:
        lines.append(comm_line(event.comm_hidden_s, event.comm_exposed_s, iterations))
    if event.seconds > 0 and event.images:
        lines.append(f"Speed: {event.images / event.seconds:.1f} images/s over {event.seconds:.1f} s")
    if event.snapshot:
        lines.append(f"Snapshot: {event.snapshot} (go on with --snapshot={event.snapshot})")
    else:
        lines.append("Snapshot: none was written")
    return lines


def scores_text(scores: tuple[OutputValue, ...]) -> str:
    """`accuracy = 0.98, loss = 0.07`."""
    return ", ".join(f"{score.name} = {number(score.value)}" for score in scores)
