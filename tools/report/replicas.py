"""The part of `engine report` about trainers with replicas of their own: gap, distance, speed, over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

from mgcaffe.tools.report.charts import Point, Series, line_chart, size_text
from mgcaffe.tools.report.data import RunRecord
from mgcaffe.tools.report.svg import number_text

_PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D46", "#7F7F7F")
"""One colour for each trainer; of more trainers the first ones are drawn."""
_NAMED_IN_FULL = 4


def replicas_body(run: RunRecord) -> str:
    """Return the part as HTML; empty where the ranks trained in step."""
    if not run.syncs:
        return ""
    found = stretches(run)
    times: list[Point] = [(each.at, each.sync_ms) for each in found if each.sync_ms is not None]
    speeds = _lines(found, lambda each: each.speeds)
    charts = [
        line_chart("synchronization gap", _lines(found, lambda each: each.gaps)),
        line_chart("distance", _lines(found, lambda each: each.distances)),
        *([line_chart("examples per second", speeds)] if any(y for each in speeds for _, y in each.points) else []),
        line_chart("time of a synchronization, ms", [Series("rank 0", times, "#009E73")]),
    ]
    cells = "".join(f"<div>{chart}</div>" for chart in charts)
    return f'<p>{escape(_about(run))}</p><div class="two">{cells}</div>{_scores(run)}'


def _about(run: RunRecord) -> str:
    last = run.sync_totals
    counts = last["iterations"]
    trainers = len(counts)
    text = f"{trainers} trainers"
    if trainers > len(_PALETTE):
        text += f", of which the first {len(_PALETTE)} are drawn"
    each = f"{min(counts)} to {max(counts)} iterations" if min(counts) < max(counts) else f"{counts[0]} iterations each"
    until = "at the end of the run" if last is run.finish else f"as of the last display, at iteration {last['iter']}"
    text += f"; {each} {until}. "
    if synchronizations := last.get("synchronizations"):
        text += f"Rank 0 has synchronized {synchronizations} times"
        if "sync_ms" in last and "sync_bytes" in last:
            text += f", {last['sync_ms']:.2f} ms and {size_text(last['sync_bytes'] / synchronizations)} each"
        if "sync_processor_s" in last:
            text += f", with {last['sync_processor_s']:.2f} s of processor time"
        if "gap" in last:
            text += f"; its gap is {last['gap']:.2f}"
        text += ". "
    else:
        text += "There were no synchronizations. "
    return text + (
        "Gap: iterations for each synchronization. Distance: of a replica from what replicas move towards, relative to"
        " that one's length, sampled. Gap, speed and time are those since the display before."
    )


@dataclass(frozen=True)
class Stretch:
    """What happened between one display and the next.

    Attributes:
        at: rank 0's iteration at the end.
        gaps: of each trainer its iterations for each synchronization; None without any.
        distances: of each trainer as it was sampled last; None before that.
        speeds: examples per second of each trainer; empty where nobody trained.
        sync_ms: mean time of a synchronization; None without any.
    """

    at: int
    gaps: list[float | None]
    distances: list[float | None]
    speeds: list[float]
    sync_ms: float | None


def stretches(run: RunRecord) -> list[Stretch]:
    """Return those of a run, but for the one in which it was resumed."""
    return [_stretch(before, after) for before, after in pairwise(run.syncs) if _goes_on(before, after)]


def _goes_on(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return (
        len(before["iterations"]) == len(after["iterations"])
        and len(before["rounds"]) == len(after["rounds"])
        and before.get("synchronizations", 0) <= after.get("synchronizations", 0)
        and min(_differences(before, after, "iterations"), default=0) >= 0
        and min(_differences(before, after, "rounds"), default=0) >= 0
    )


def _differences(before: dict[str, Any], after: dict[str, Any], name: str) -> list[int]:
    """Return what each trainer has done meanwhile."""
    return [other - one for one, other in zip(before[name], after[name], strict=True)]


def _stretch(before: dict[str, Any], after: dict[str, Any]) -> Stretch:
    earlier = before.get("synchronizations", 0)
    rounds = after.get("synchronizations", 0) - earlier
    trained = _differences(before, after, "iterations")
    speed = after.get("examples_per_s", 0.0)
    sync_ms = None
    if rounds and "sync_ms" in after:  # the log has means since the beginning
        total = after["sync_ms"] * after["synchronizations"] - before.get("sync_ms", 0.0) * earlier
        sync_ms = total / rounds
    return Stretch(
        at=after["iter"],
        gaps=[
            count / each if each else None
            for count, each in zip(trained, _differences(before, after, "rounds"), strict=False)
        ],
        distances=after["distances"],
        speeds=[speed * count / sum(trained) for count in trained] if sum(trained) else [],
        sync_ms=sync_ms,
    )


def _lines(found: list[Stretch], values: Callable[[Stretch], Sequence[float | None]]) -> list[Series]:
    """Return one line for each trainer."""
    trainers = min(len(_PALETTE), max((len(values(each)) for each in found), default=0))
    word = "rank " if trainers <= _NAMED_IN_FULL else ""
    lines = []
    for trainer in range(trainers):
        points = [(each.at, values(each)[trainer]) for each in found if trainer < len(values(each))]
        shown: list[Point] = [(at, value) for at, value in points if value is not None]
        lines.append(Series(f"{word}{trainer}", shown, _PALETTE[trainer]))
    return lines


def _scores(run: RunRecord) -> str:
    """Return a table of the last scores: of one replica, and of the mean of all."""
    finish = run.finish or {}
    rows = []
    for net, (one, mean) in enumerate(zip(finish.get("scores", []), finish.get("mean_scores", []), strict=False)):
        for name in one.keys() & mean.keys():
            label = name if not net else f"{name} (#{net})"
            rows.append((label, number_text(one[name]), number_text(mean[name])))
    if not rows:
        return ""
    head = "<tr><th>test score</th><th>replica of rank 0</th><th>mean of all replicas</th></tr>"
    cells = "".join(f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row)}</tr>" for row in sorted(rows))
    return f'<div class="scroll"><table>{head}{cells}</table></div>'
