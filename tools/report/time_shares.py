"""The section that says where an iteration's time goes, in one sentence and one bar."""

from __future__ import annotations

from html import escape

from mgcaffe.engine.data.stages import ADVICE, bottleneck, share_of
from mgcaffe.engine.data.stages import NAMES as STAGE_NAMES
from mgcaffe.tools.report.charts import COLOURS, NAMES, stacked_bar
from mgcaffe.tools.report.data import RunRecord
from mgcaffe.tools.report.html_page import counted, section
from mgcaffe.tools.report.spans import TimelineData


def where_time_goes(run: RunRecord, timeline: TimelineData | None) -> str:
    """Return the answer to "where did the time go?", in one sentence and one bar."""
    if timeline is not None:
        phases = timeline.phases()
        recorded = f"mean over {counted(len(timeline.iterations), 'recorded iteration')}"
        source = f"{recorded} and {counted(len(timeline.ranks), 'rank')}"
    else:
        wait, data = run.median("comm_exposed_ms"), run.median("data_wait_ms")
        whole = 1e3 * run.median("seconds")
        phases = {"computing": max(0.0, whole - wait - data), "wait": wait, "data": data}
        source = "medians of the log; with --timeline the computing is shown in detail"
    if exposed := run.waited_for_rounds_ms:
        phases["foreground"] = exposed
    total = sum(phases.values())
    parts = [(NAMES.get(name, name), COLOURS.get(name, "#56B4E9"), value) for name, value in phases.items()]
    body = f'<p class="verdict">{_verdict(phases, total, run.data_stages)}</p>{stacked_bar(parts, total)}'
    hidden, waited = _communication(run, timeline)
    if hidden + waited > 0:
        bar = [("hidden behind computing", COLOURS["allreduce"], hidden), ("waited for", COLOURS["wait"], waited)]
        body += f"<p>Communication, {hidden + waited:.2f} ms per iteration:</p>{stacked_bar(bar, hidden + waited)}"
    return section("Where an iteration's time goes", f"<p>{escape(source)}</p>{body}")


def _verdict(phases: dict[str, float], total: float, stages: dict[str, float]) -> str:
    """Return the largest shares, and what to look at; `stages` are those of making batches."""
    ordered = sorted(phases.items(), key=lambda item: -item[1])
    shares = ", ".join(
        f"<b>{NAMES.get(name, name)} {100 * value / total:.0f} %</b>"
        for name, value in ordered[:3]
        if value > 0.01 * total
    )
    advice = ""
    if phases.get("data", 0.0) > 0.1 * total:
        advice = _data_advice(stages)
    elif phases.get("wait", 0.0) > 0.15 * total:
        advice = " Much of it waits for communication: compare the schedules and the groups below."
    elif phases.get("foreground", 0.0) > 0.15 * total:
        advice = " Much of it waits for synchronizations: more iterations between two, or the background, helps."
    return f"Of {total:.2f} ms per iteration: {shares}.{advice}"


def _data_advice(stages: dict[str, float]) -> str:
    slowest = bottleneck(stages)
    if slowest is None:
        return " Reading data is the bottleneck: a faster source, or more prefetch, helps."
    share = share_of(stages, slowest)
    named = f" Data are the bottleneck: {STAGE_NAMES[slowest]} takes {share:.0f} % of making a batch."
    return f"{named} To speed it up: {escape(ADVICE[slowest])}."


def _communication(run: RunRecord, timeline: TimelineData | None) -> tuple[float, float]:
    """(hidden, exposed) milliseconds per iteration, of the recorded iterations or else of the log's."""
    if timeline is None or not timeline.plan:
        return run.median("comm_hidden_ms"), run.median("comm_exposed_ms")
    count = len(timeline.iterations) * len(timeline.ranks)
    total = sum(box.length for box in timeline.allreduces()) / count
    exposed = min(total, timeline.phases()["wait"])
    return total - exposed, exposed
