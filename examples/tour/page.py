"""The page of the tour: what an iteration takes under each schedule, and one iteration of each, drawn to one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from mgcaffe.tools.report.charts import COLOURS
from mgcaffe.tools.report.html_page import html_page
from mgcaffe.tools.report.iteration_picture import iteration_picture
from mgcaffe.tools.report.spans import TimelineData
from mgcaffe.tools.report.svg import Drawing, Scale, number_text

NOTE = (
    "Medians over the iterations with each schedule's final plan. Predicted: the time that an iteration\n"
    "did not wait for communication, plus the waiting that the plan predicts. Hidden: the part of the\n"
    "communication that ran beside computation. Other programs on the same cores disturb all times."
)
_COMPUTE, _WAIT, _HIDDEN = "#56B4E9", COLOURS["wait"], COLOURS["allreduce"]
_LEFT, _RIGHT, _ROW = 150, 960, 62


@dataclass(frozen=True)
class Result:
    """What was measured under one schedule; times are medians in ms.

    Attributes:
        schedule: its name.
        plan: the plan that it chose.
        groups: the plan's number of merged groups; 0 where none was found in time.
        iteration_ms: an iteration.
        hidden_ms: communication beside computation.
        exposed_ms: communication that the iteration waited for.
        predicted_ms: an iteration with the waiting that the plan predicts; None where it predicts nothing.
        final_loss: the last iteration's loss; None where it is not finite.
        timeline: recorded iterations, if there are any.
    """

    schedule: str
    plan: str
    groups: int
    iteration_ms: float
    hidden_ms: float
    exposed_ms: float
    predicted_ms: float | None
    final_loss: float | None
    timeline: TimelineData | None

    @property
    def hidden_share(self) -> float:
        """The hidden part of the communication, 0 to 1."""
        whole = self.hidden_ms + self.exposed_ms
        return self.hidden_ms / whole if whole > 0 else 0.0


def make_page(results: Sequence[Result], link: str, ranks: int) -> str:
    """Return the page.

    Args:
        results: one for each schedule, in the order of the runs.
        link: the emulated link, as `--emulate_link` takes it.
        ranks: the number of ranks of each run.
    """
    banner = (
        f"Emulated: {ranks} ranks of one machine; every all-reduce of M bytes takes at least a + bM seconds, {link}."
    )
    body = (
        f'<h1>One net, one link, {len(results)} schedules</h1><p class="banner">{escape(banner)}</p>'
        + _section("What an iteration takes", f'<p class="verdict">{escape(verdict(results))}</p>{_KEY}{bars(results)}')
        + _section("One iteration of each schedule", _iterations(results))
    )
    return html_page("mgcaffe: a tour", body, NOTE.replace("\n", " "))


def verdict(results: Sequence[Result]) -> str:
    """Say which schedule is the fastest, by how much, and whether the weights agree."""
    fastest = min(results, key=lambda result: result.iteration_ms)
    slowest = max(results, key=lambda result: result.iteration_ms)
    text = f"{fastest.schedule} is the fastest with {fastest.iteration_ms:.2f} ms per iteration"
    if slowest is not fastest:
        ratio = slowest.iteration_ms / fastest.iteration_ms
        text += f"; {slowest.schedule} takes {ratio:.2f} times as long ({slowest.iteration_ms:.2f} ms)"
        if len({result.final_loss for result in results}) == 1:
            text += ". All end with the same loss, to the bit"
    return text + "."


def bars(results: Sequence[Result]) -> str:
    """Return a bar for each schedule: computing and waiting, the prediction as an outline, what was hidden below."""
    drawing = Drawing(1120, 34 + _ROW * len(results), "time per iteration under each schedule")
    longest = max(max(result.iteration_ms, result.predicted_ms or 0.0) for result in results)
    across = Scale(0, longest * 1.02, _LEFT, _RIGHT)
    for tick in across.ticks(8):
        drawing.line(across(tick), 4, across(tick), 8 + _ROW * len(results), "#E6E6E6")
        drawing.text(across(tick), 24 + _ROW * len(results), f"{number_text(tick)} ms", size=11, colour="#8A8A8A",
                     anchor="middle")  # fmt: skip
    for row, result in enumerate(results):
        _bar(drawing, across, 10 + _ROW * row, result)
    return drawing.render()


def _bar(drawing: Drawing, across: Scale, top: float, result: Result) -> None:
    drawing.text(_LEFT - 10, top + 16, result.schedule, size=14, anchor="end", bold=True)
    groups = f"{result.groups} group{'s' * (result.groups != 1)}" if result.groups else "no plan yet"
    drawing.text(_LEFT - 10, top + 32, groups, size=11, colour="#8A8A8A", anchor="end")
    computing = max(0.0, result.iteration_ms - result.exposed_ms)
    start, middle, end = across(0), across(computing), across(result.iteration_ms)
    drawing.box(start, top, middle - start, 24, _COMPUTE, tip=f"computing and the rest: {computing:.3f} ms")
    drawing.box(middle, top, end - middle, 24, _WAIT, tip=f"waiting for communication: {result.exposed_ms:.3f} ms")
    drawing.fitted_text(middle, top + 16, end - middle, f"{result.exposed_ms:.2f} ms")
    if result.predicted_ms is not None:
        drawing.box(start, top - 3, across(result.predicted_ms) - start, 30, "none", stroke="#333", dashed=True,
                    tip=f"predicted: {result.predicted_ms:.3f} ms")  # fmt: skip
    label = f"{result.iteration_ms:.2f} ms"
    if result.predicted_ms is not None:
        label += f", predicted {result.predicted_ms:.2f}"
    drawing.text(max(end, across(result.predicted_ms or 0.0)) + 8, top + 16, label, size=12)
    if result.hidden_ms > 0:
        length = across(result.hidden_ms) - start
        text = f"hidden communication: {result.hidden_ms:.2f} ms, {100 * result.hidden_share:.0f} %"
        drawing.box(start, top + 29, length, 9, _HIDDEN, tip=text)
        drawing.text(start + length + 6, top + 38, text, size=10.5, colour="#2A6B55")


_KEY = "".join(
    f'<span><i style="background:{colour}"></i>{name}</span>'
    for colour, name in (
        (_COMPUTE, "computing and the rest"),
        (_WAIT, "waiting for communication"),
        (_HIDDEN, "communication hidden beside computation"),
    )
)
_KEY = f'<div class="key">{_KEY}<span>dashed: predicted</span></div>'


def _iterations(results: Sequence[Result]) -> str:
    """Return rank 0's iteration of median length of every run that recorded one, all over the same axis."""
    typical = [
        (result, timeline, timeline.typical_iteration())
        for result in results
        if (timeline := result.timeline) is not None and timeline.iterations
    ]
    if not typical:
        return "<p>These runs were too short to record an iteration.</p>"
    longest = max(span.length for _, timeline, number in typical if (span := timeline.span_of(number)) is not None)
    text = (
        "Rank 0: the computing thread's layers forward (blue) and backward (orange), and below them the merged "
        "groups' all-reduces (green). All on one scale."
    )
    pictures = "".join(
        f"<h2>{escape(_plan_text(result))}</h2>{iteration_picture(timeline, number, max_ranks=1, min_length=longest)}"
        for result, timeline, number in typical
    )
    return f"<p>{text}</p>{pictures}"


def _plan_text(result: Result) -> str:
    return result.plan if result.plan.startswith(result.schedule) else f"{result.schedule}: {result.plan}"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{body}</section>"
