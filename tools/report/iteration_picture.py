"""The picture of an iteration in `engine report`, as the MG-WFBP paper draws it (arXiv 1912.09268, figure 1).

For each rank two lanes: what the computing thread does, layer by layer, and below it the merged groups' all-reduces,
each with the time that it was ready and waited; or the rounds that bring replicas together.
"""

from __future__ import annotations

from mgcaffe.tools.report.charts import COLOURS, size_text
from mgcaffe.tools.report.spans import Box, TimelineData
from mgcaffe.tools.report.svg import Drawing, Scale, number_text

_MAX_RANKS = 8
_COMPUTE, _COMM, _GAP = 42, 28, 20
_LEFT, _RIGHT = 124, 1092
_SHADES = {"forward": ("#56B4E9", "#8FCBEF"), "backward": ("#E69F00", "#F2BE4F")}


def iteration_picture(
    timeline: TimelineData, iteration: int, *, max_ranks: int = _MAX_RANKS, min_length: float = 0.0
) -> str:  # fmt: skip
    """Return the picture of one iteration over rank 0's clock.

    Args:
        timeline: the recorded iterations.
        iteration: the number of one of them.
        max_ranks: how many ranks are drawn at most.
        min_length: the milliseconds that the axis has at least, so that pictures of several runs share one scale.
    """
    ranks = min(len(timeline.ranks), max_ranks)
    spans = [span for rank in range(ranks) if (span := timeline.span_of(iteration, rank)) is not None]
    begin, end = min(span.start for span in spans), max(span.end for span in spans)
    comm = "all-reduce" if timeline.plan else "synchronize" if timeline.has_rounds else ""
    lanes = _COMPUTE + (_COMM if comm else 0) + _GAP
    drawing = Drawing(1120, 30 + lanes * ranks, f"timeline of iteration {iteration}")
    across = Scale(0, max(end - begin, min_length) * 1.005, _LEFT, _RIGHT)
    for tick in across.ticks(10):
        drawing.line(across(tick), 6, across(tick), 10 + lanes * ranks, "#ECECEC")
        text = f"{number_text(tick)} ms"
        drawing.text(across(tick), 24 + lanes * ranks, text, size=10.5, colour="#8A8A8A", anchor="middle")
    for rank in range(ranks):
        top = 10 + lanes * rank
        boxes = [box for box in timeline.boxes if box.rank == rank and box.end > begin and box.start < end]
        drawing.text(0, top + 18, f"rank {rank}", size=12.5, bold=True)
        drawing.text(_LEFT - 8, top + 26, "compute", size=10.5, colour="#8A8A8A", anchor="end")
        _compute_lane(drawing, boxes, across, begin, top)
        if comm:
            drawing.text(_LEFT - 8, top + _COMPUTE + 17, comm, size=10.5, colour="#8A8A8A", anchor="end")
            _comm_lane(drawing, boxes, across, begin, top + _COMPUTE)
    return drawing.render()


def _compute_lane(drawing: Drawing, boxes: list[Box], across: Scale, begin: float, top: float) -> None:
    count = {"forward": 0, "backward": 0}
    drawing.box(_LEFT, top + 4, _RIGHT - _LEFT, _COMPUTE - 6, "#F6F6F6")
    waits = [box for box in boxes if box.category == "data"]
    for box in boxes:
        if box.category in ("iteration", "allreduce", "synchronization", "snapshot"):
            continue
        colour = COLOURS.get(box.category, COLOURS["other"])
        if box.category in count:
            colour = _SHADES[box.category][count[box.category] % 2]
            count[box.category] += 1
        x, width = _place(box, across, begin)
        tip = f"{box.category} {box.name}: {box.length:.3f} ms"
        inner = 6 if box.category == "data" else 0
        drawing.box(x, top + 4 + inner, width, _COMPUTE - 6 - 2 * inner, colour, tip=tip)
        dark = box.category in ("forward", "backward")
        name = {"wait": "wait", "update": "update", "agree": "agree"}.get(box.category, box.name)
        free = max([x, *(across(wait.end - begin) for wait in waits if _lies_in(wait, box))])
        drawing.fitted_text(
            free, top + 4 + _COMPUTE / 2, x + width - free, name, size=10.5, colour="#222" if dark else "#fff"
        )


def _lies_in(wait: Box, box: Box) -> bool:
    """Return whether a box is a wait for data that is drawn over the beginning of another, a data layer's."""
    return box.category != "data" and box.start <= wait.start < box.end


def _comm_lane(drawing: Drawing, boxes: list[Box], across: Scale, begin: float, top: float) -> None:
    for box in boxes:
        if box.category == "synchronization":
            _round(drawing, box, _place(box, across, begin), top)
    groups = [box for box in boxes if box.category == "allreduce"]
    for box in groups:
        ready = across(box.start - _queued(box) - begin)
        drawing.line(max(_LEFT, ready), top + 11, max(_LEFT, across(box.start - begin)), top + 11,
                     COLOURS["allreduce"], dashed=True)  # fmt: skip
        if ready >= _LEFT:
            drawing.line(ready, top, ready, top + 22, COLOURS["allreduce"], width=1.5)
    for box in groups:
        x, width = _place(box, across, begin)
        facts = box.facts
        tip = (
            f"group {facts['group']} ({facts['layers']}), {size_text(facts['bytes'])}: ready, waited "
            f"{_queued(box):.3f} ms, then {box.length:.3f} ms"
        )
        drawing.box(x, top + 1, width, 20, COLOURS["allreduce"], tip=tip, stroke="#fff")
        drawing.fitted_text(x, top + 15, width, f"group {facts['group']}", size=10.5)


def _round(drawing: Drawing, box: Box, place: tuple[float, float], top: float) -> None:
    x, width = place
    tip = (
        f"synchronization {box.facts['round']}: {box.length:.3f} ms, {box.facts['gap']} iterations after the one before"
    )
    drawing.box(x, top + 1, width, 20, COLOURS["allreduce"], tip=tip, stroke="#fff")
    drawing.fitted_text(x, top + 15, width, f"round {box.facts['round']}", size=10.5)


def _queued(box: Box) -> float:
    """Return the milliseconds from when a group was ready until its all-reduce began."""
    return float(box.facts["start_ms"] - box.facts["ready_ms"])


def _place(box: Box, across: Scale, begin: float) -> tuple[float, float]:
    x = max(_LEFT, across(box.start - begin))
    return x, min(_RIGHT, across(box.end - begin)) - x
