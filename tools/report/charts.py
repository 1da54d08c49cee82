"""The curves and bars of `engine report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from mgcaffe.tools.report.spans import GroupLine
from mgcaffe.tools.report.svg import Drawing, Scale, number_text, tick_texts

# Colours that people with colour blindness can tell apart (Okabe and Ito, and neighbours of theirs).
COLOURS = {
    "forward": "#56B4E9",
    "backward": "#E69F00",
    "wait": "#D55E00",
    "agree": "#F0907A",
    "update": "#CC79A7",
    "data": "#8C6D46",
    "test": "#7F7F7F",
    "snapshot": "#7F7F7F",
    "other": "#CFCFCF",
    "allreduce": "#009E73",
    "synchronization": "#009E73",
    "foreground": "#D55E00",
}
NAMES = {
    "forward": "forward",
    "backward": "backward",
    "wait": "waiting for communication",
    "agree": "agreeing on the loss",
    "update": "update",
    "data": "waiting for data",
    "test": "test",
    "other": "other",
    "allreduce": "all-reduce",
    "synchronization": "synchronization of replicas",
    "foreground": "synchronizing replicas",
}
_GRID, _SOFT, _TEXT = "#E6E6E6", "#8A8A8A", "#333333"
_MAX_POINTS = 500
_MAX_ROWS = 40
_MAX_NAME = 30
_LETTER, _LONGEST_LABEL = 7.0, 80
_TICKS = 5
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One line of a chart: (x, y) with x ascending; a faint one lies behind the others; dots have tips."""

    name: str
    points: Sequence[Point]
    colour: str
    faint: bool = False
    dots: bool = False


def stacked_bar(parts: Sequence[tuple[str, str, float]], total: float) -> str:
    """Return one bar of (name, colour, milliseconds) parts, each with its share; parts below 0.1 % are left out."""
    shown = [part for part in parts if total > 0 and part[2] / total >= 1e-3]
    drawing = Drawing(1120, 66, ", ".join(f"{name} {value:.3g} ms" for name, _, value in shown))
    x = 0.0
    for name, colour, value in shown:
        width = value / total * 1120
        share = f"{100 * value / total:.0f} %"
        tip = f"{name}: {value:.3f} ms, {100 * value / total:.1f} %"
        drawing.box(x, 0, width, 40, colour, tip=tip, stroke="#fff")
        dark = colour in (COLOURS["other"], COLOURS["forward"], COLOURS["backward"])
        drawing.fitted_text(x, 25, width, f"{share} {name}", size=13, colour="#222" if dark else "#fff")
        if width > 46:
            drawing.text(x + width / 2, 57, f"{value:.2f} ms", size=11, colour=_SOFT, anchor="middle")
        x += width
    return drawing.render()


def line_chart(title: str, series: Sequence[Series]) -> str:
    """Return a chart of lines over iterations; the vertical axis starts at 0 where that wastes little."""
    drawing = Drawing(550, 250, title)
    shown = [each for each in series if each.points]
    drawing.text(46, 16, title, size=13, bold=True)
    if not shown:
        drawing.text(46, 120, "nothing was recorded of it", colour=_SOFT)
        return drawing.render()
    xs = [x for each in shown for x, _ in each.points]
    ys = [y for each in shown for _, y in each.points]
    low, high = min(ys), max(ys)
    low = 0.0 if 0 <= low <= 0.6 * high else low
    up = Scale(low, high + 0.04 * (high - low or abs(high) or 1.0), 218, 40)
    widest = max(map(len, tick_texts(up.ticks(_TICKS))), default=0)
    across = Scale(min(xs), max(xs), max(46.0, 10 + 6.6 * widest), 530)
    _axes(drawing, across, up)
    for each in sorted(shown, key=lambda one: not one.faint):
        points = [(across(x), up(y)) for x, y in thin_out(each.points)]
        drawing.curve(points, each.colour, width=1.0 if each.faint else 1.8, opacity=0.35 if each.faint else 1.0)
        if each.dots or len(each.points) == 1:
            for x, y in each.points[:_MAX_POINTS]:
                drawing.dot(across(x), up(y), each.colour, f"{each.name}, iteration {x:g}: {number_text(y)}")
    _legend(drawing, shown, space=540 - 46 - 8.0 * len(title))
    return drawing.render()


def thin_out(points: Sequence[Point]) -> list[Point]:
    """Return at most about `_MAX_POINTS`: of each stretch the lowest and the highest, so that no peak is lost."""
    if len(points) <= _MAX_POINTS:
        return list(points)
    stretch = -(-2 * len(points) // _MAX_POINTS)
    thinned: list[Point] = []
    for start in range(0, len(points), stretch):
        part = points[start : start + stretch]
        ends = {min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])}
        thinned += sorted(ends)
    return thinned


def _axes(drawing: Drawing, across: Scale, up: Scale) -> None:
    levels, places = up.ticks(_TICKS), across.ticks(6)
    for tick, text in zip(levels, tick_texts(levels), strict=True):
        drawing.line(across.start, up(tick), across.end, up(tick), _GRID)
        drawing.text(across.start - 6, up(tick) + 4, text, size=10.5, colour=_SOFT, anchor="end")
    for tick, text in zip(places, tick_texts(places), strict=True):
        drawing.text(across(tick), up.start + 15, text, size=10.5, colour=_SOFT, anchor="middle")
    drawing.line(across.start, up.start, across.end, up.start, _SOFT)
    drawing.text(across.end, up.start + 30, "iteration", size=10.5, colour=_SOFT, anchor="end")


def _legend(drawing: Drawing, series: Sequence[Series], space: float) -> None:
    """Name the lines beside the title, as many as there is space for."""
    if len(series) < 2:
        return
    names = [each.name if len(each.name) <= _MAX_NAME else each.name[: _MAX_NAME - 1] + "…" for each in series]
    ends = list(accumulate(7.0 * len(name) + 26 for name in names))
    count = len(series) if ends[-1] <= space else sum(end <= space - 80 for end in ends)
    x = 540.0
    if count < len(series):
        more = f"and {len(series) - count} more" if count else f"{len(series)} lines"
        drawing.text(x, 16, more, size=11, colour=_SOFT, anchor="end")
        x -= 80
    for each, name in reversed(list(zip(series, names, strict=True))[:count]):
        x -= 7.0 * len(name)
        drawing.text(x, 16, name, size=11, colour=_TEXT)
        x -= 14
        drawing.box(x, 8, 10, 8, each.colour, opacity=0.5 if each.faint else 1.0)
        x -= 12


def group_chart(groups: Sequence[GroupLine], backward: float, predicted_backward: float) -> str:
    """Predicted (outlined) above measured (filled) for each group, over the time since backward began."""
    shown = groups[:_MAX_ROWS]
    height = 58 + 34 * len(shown)
    drawing = Drawing(1120, height, "predicted and measured all-reduces of every group")
    latest = max([backward, predicted_backward, *(max(g.predicted[2], g.measured[2]) for g in shown)])
    across = Scale(0, latest * 1.04, 150, 1110)
    for tick in across.ticks(10):
        drawing.line(across(tick), 26, across(tick), height - 24, _GRID)
        drawing.text(across(tick), height - 8, f"{number_text(tick)} ms", size=10.5, colour=_SOFT, anchor="middle")
    early, late = sorted((backward, predicted_backward))
    for at, dashed in ((backward, False), (predicted_backward, True)):
        drawing.line(across(at), 18, across(at), height - 24, COLOURS["backward"], width=1.6, dashed=dashed)
        is_left = (at == early and early != late) or across(at) > 940  # further right a label would be cut off
        anchor, shift = ("end", -4) if is_left else ("start", 4)
        text = "backward is predicted to end" if dashed else "backward ends"
        drawing.text(across(at) + shift, 14 if not dashed else 24, text, size=10.5, colour="#9A6A00", anchor=anchor)
    for row, group in enumerate(shown):
        y = 32 + 34 * row
        drawing.text(142, y + 13, f"group {group.number}, {size_text(group.bytes)}", size=11, anchor="end")
        drawing.text(142, y + 26, group.layers if len(group.layers) < 24 else group.layers[:23] + "…", size=9.5,
                     colour=_SOFT, anchor="end")  # fmt: skip
        for (ready, start, end), top, name in ((group.predicted, y, "predicted"), (group.measured, y + 14, "measured")):
            tip = f"group {group.number} {name}: ready {ready:.3f}, start {start:.3f}, end {end:.3f} ms"
            drawing.line(across(ready), top + 6, across(start), top + 6, COLOURS["allreduce"], dashed=True)
            outlined = name == "predicted"
            fill = "#fff" if outlined else COLOURS["allreduce"]
            drawing.box(
                across(start), top + 1, across(end) - across(start), 11, fill,
                tip=tip, stroke=COLOURS["allreduce"], dashed=outlined,
            )  # fmt: skip
    return drawing.render()


def schedule_chart(trials: Sequence[dict[str, Any]], chosen: int | None) -> str:
    """Return a bar for each plan: measured (filled) where it was tried, predicted (outlined)."""
    shown = trials[:_MAX_ROWS]
    height = 34 + 30 * len(shown)
    drawing = Drawing(1120, height, "schedules compared")
    latest = max(max(each.get("measured_ms") or 0.0, each["predicted_ms"]) for each in shown)
    labels = [_plan_label(each) for each in shown]
    across = Scale(0, latest * 1.12, max(280.0, _LETTER * max(map(len, labels)) + 8), 1060)
    for tick in across.ticks(8):
        drawing.line(across(tick), 4, across(tick), height - 24, _GRID)
        drawing.text(across(tick), height - 8, f"{number_text(tick)} ms", size=10.5, colour=_SOFT, anchor="middle")
    for row, (trial, label) in enumerate(zip(shown, labels, strict=True)):
        y = 8 + 30 * row
        drawing.text(across.start - 8, y + 15, label, size=12, anchor="end", bold=row == chosen)
        measured, predicted = trial.get("measured_ms"), trial["predicted_ms"]
        if measured:
            fill = COLOURS["allreduce"] if row == chosen else "#9CCFBE"
            tip = f"{label}: measured {measured:.3f} ms, {trial['exposed_ms']:.3f} ms of it waiting"
            drawing.box(across(0), y + 3, across(measured) - across(0), 16, fill, tip=tip)
            text = f"{measured:.2f} ms" + (" — chosen" if row == chosen else "")
            drawing.text(across(max(measured, predicted)) + 6, y + 15, text, size=11.5, bold=row == chosen)
        tip = f"{label}: predicted {predicted:.3f} ms"
        drawing.box(across(0), y, across(predicted) - across(0), 22, "none", stroke=_TEXT, dashed=True, tip=tip)
        if not measured:
            drawing.text(across(predicted) + 6, y + 15, f"{predicted:.2f} ms predicted", size=11.5)
    return drawing.render()


def _plan_label(trial: dict[str, Any]) -> str:
    groups = trial["groups"]
    label = f"{trial['plan']}{', blocking' if trial.get('blocking') else ''}: {groups} group{'s' * (groups != 1)}"
    return label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…"


def size_text(count: float) -> str:
    """Return bytes for a reader."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.3g} {unit}"
        count /= 1024
    return f"{count:.3g} GiB"
