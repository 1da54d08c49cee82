"""The page that `engine report` writes: HTML with its style and pictures inside, from a run's log and its timeline."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from mgcaffe.tools.report.charts import (
    COLOURS,
    NAMES,
    Series,
    group_chart,
    line_chart,
    schedule_chart,
    size_text,
)
from mgcaffe.tools.report.data import RunRecord
from mgcaffe.tools.report.html_page import counted, html_page, section
from mgcaffe.tools.report.iteration_picture import iteration_picture
from mgcaffe.tools.report.replicas import replicas_body
from mgcaffe.tools.report.spans import TimelineData
from mgcaffe.tools.report.svg import number_text
from mgcaffe.tools.report.time_shares import where_time_goes

_LAST_LINES = 12


def make_page(
    run: RunRecord, timeline: TimelineData | None, *, plan: Sequence[dict[str, Any]] = (), log: str = ""
) -> str:
    """Return the page.

    Args:
        run: the JSON log.
        timeline: the timeline, if there is one.
        plan: predictions for every schedule, shown where the run has tried none (`read_predictions`).
        log: the run's log.
    """
    title = f"{run.start.get('net') or 'a net'} — training report"
    sections = [
        _head(run, timeline),
        where_time_goes(run, timeline),
        _replicas(run),
        _iteration(timeline),
        _groups(run, timeline),
        _schedules(run, plan),
        _curves(run),
        _notes(run, log),
    ]
    footer = (
        f"Made by engine report from {run.path}{f' and {timeline.path}' if timeline else ''}. "
        "Rest the mouse on a bar for its numbers."
    )
    return html_page(title, "".join(sections), footer)


def _head(run: RunRecord, timeline: TimelineData | None) -> str:
    last = run.iterations[-1]
    facts = [
        ("iterations", f"{last['iter'] + 1}" + (f" of {run.start['max_iter']}" if run.start.get("max_iter") else "")),
        ("ranks", run.start.get("ranks", 1)),
        *_speeds(run),
        ("final loss", number_text(last["smoothed_loss"]) if last.get("smoothed_loss") is not None else "not a number"),
    ]
    if run.tests:
        tested = run.tests[-1]
        when = "" if tested["iter"] == last["iter"] + 1 else f", iteration {tested['iter']}"
        facts += [(f"test {name}{when}", number_text(value)) for name, value in tested["scores"].items()]
    if run.plan and run.plan.get("plan"):
        facts.append(("schedule", f"{run.plan['plan']}, {counted(run.plan['groups'], 'group')}"))
    elif timeline is not None and timeline.plan:
        facts.append(("schedule", timeline.plan["schedule"]))
    if run.start.get("precision", "float32") != "float32":
        facts.append(("products", run.start["precision"]))
    if run.start.get("parameters"):
        facts.append(("parameters", f"{run.start['parameters']:,}"))
    cells = "".join(f"<div><b>{escape(str(value))}</b>{escape(name)}</div>" for name, value in facts)
    banner = "".join(
        f'<p class="banner">{escape(text)}</p>' for kind, _, text in run.notes if text.startswith("EMULATED LINK")
    )
    name = escape(str(run.start.get("net") or "Training report"))
    return f'<h1>{name}</h1>{banner}<div class="facts">{cells}</div>'


def _speeds(run: RunRecord) -> list[tuple[str, str]]:
    """Return the examples per second: of trainers with replicas of their own those of all, and rank 0's."""
    if not _counts_images(run):
        return []
    own = number_text(run.median("images_per_s"))
    if not run.syncs:
        return [("images per second", own)]
    whole = (run.finish or {}).get("examples_per_s") or run.syncs[-1].get("examples_per_s")
    shown = [("examples per second, all trainers", number_text(whole))] if whole is not None else []
    return [*shown, ("examples per second, rank 0", own)]


def _replicas(run: RunRecord) -> str:
    body = replicas_body(run)
    return section("Replicas kept together", body) if body else ""


def _iteration(timeline: TimelineData | None) -> str:
    if timeline is None:
        return section(
            "The timeline of an iteration", "<p>No timeline was given: train with --timeline=FILE to see it.</p>"
        )
    number = timeline.typical_iteration()
    kinds = [kind for kind, length in timeline.phases().items() if length > 0 and kind != "other"]
    kinds += ["allreduce"] if timeline.plan else ["synchronization"] if timeline.has_rounds else []
    key = "".join(f'<span><i style="background:{COLOURS[kind]}"></i>{NAMES[kind]}</span>' for kind in kinds)
    offsets = [entry["clock_uncertainty_us"] for entry in timeline.ranks]
    more = f" of {len(timeline.ranks)} ranks the first 8" if len(timeline.ranks) > 8 else ""
    about = f"Iteration {number}, of the recorded ones the one of median length{more}. "
    if len(offsets) > 1:
        about += f"Clocks of the ranks are compared to within {max(offsets) / 1e3:.3f} ms. "
    about += "The whole file opens in ui.perfetto.dev."
    return section(
        "The timeline of an iteration",
        f'<p>{escape(about)}</p><div class="key">{key}</div>{iteration_picture(timeline, number)}',
    )


def _predicted(run: RunRecord, timeline: TimelineData) -> str:
    """Return what the recorded plan's predictions rest on."""
    if run.plan is None:
        return "Predicted by the run that found this plan"
    if min(timeline.iterations, default=0) < run.plan["iter"]:
        return "Predicted before the last plan was chosen"
    if "predicted_from" not in run.plan:
        return "Predicted"
    return {
        "trials": "Predicted after the trials, from what this plan took in them",
        "calibration": "Predicted from the calibration, before training by this plan",
    }.get(run.plan["predicted_from"], "Predicted where the plan file was made")


def _groups(run: RunRecord, timeline: TimelineData | None) -> str:
    groups = timeline.groups() if timeline is not None else []
    if timeline is None or timeline.plan is None or not groups:
        return ""
    backward, predicted = timeline.backward_ms(), timeline.plan["backward_ms"]
    rows = "".join(
        "<tr>"
        f'<td>{group.number}</td><td class="left">{escape(group.layers)}</td><td>{size_text(group.bytes)}</td>'
        + _pair(group.predicted[0], group.measured[0])
        + _pair(group.predicted[2] - group.predicted[1], group.measured[2] - group.measured[1])
        + _pair(group.predicted[2], group.measured[2])
        + "</tr>"
        for group in groups
    )
    head = (
        '<tr><th>group</th><th class="left">layers</th><th>size</th><th>ready, predicted</th><th>measured</th>'
        "<th>all-reduce, predicted</th><th>measured</th><th>end, predicted</th><th>measured</th></tr>"
    )
    if any(group.predicted[2] > 0 for group in groups):
        # Groups that travel beside the next forward pass don't end in the order in which they are listed.
        ends = [(group.predicted[2], group.measured[2]) for group in groups]
        expected, actual = (max(times) for times in zip(*ends, strict=True))
        text = (
            f"{_predicted(run, timeline)}: backward {predicted:.2f} ms, communication ends at {expected:.2f} ms. "
            f"Measured: backward {backward:.2f} ms, communication ends at {actual:.2f} ms. "
            "Milliseconds since backward began, medians over ranks and iterations."
        )
    else:
        text = "This plan was made without measuring, so nothing was predicted."
    return section(
        "Every group: predicted and measured",
        f"<p>{escape(text)}</p>{group_chart(groups, backward, predicted)}"
        f'<div class="scroll"><table>{head}{rows}</table></div>',
    )


def _pair(predicted: float, measured: float) -> str:
    return f"<td>{predicted:.3f}</td><td>{measured:.3f}</td>"


def _schedules(run: RunRecord, plan: Sequence[dict[str, Any]]) -> str:
    trials = (run.plan or {}).get("trials") or []
    if trials:
        fastest = "the first was chosen: of those that are as fast as the fastest, to within noise, the simplest plan"
        text = (
            f"Plans that schedule {run.plan['schedule'] if run.plan else ''} tried on real iterations; {fastest}. "
            "Times from the start of backward until all gradients are means; dashed: predicted, once the trials had "
            "ended, from what all plans took in them."
        )
        return section("Schedules compared", f"<p>{escape(text)}</p>{schedule_chart(trials, 0)}")
    if plan:
        best = min(range(len(plan)), key=lambda index: plan[index]["predicted_ms"])
        return section(
            "Schedules compared", f"<p>Iterations as engine plan predicts them.</p>{schedule_chart(plan, best)}"
        )
    if run.start.get("ranks", 1) == 1 or run.syncs:
        return ""
    return section(
        "Schedules compared",
        "<p>This run tried one schedule only: train with --schedule=auto, or give what engine plan --json predicts as "
        "--plan.</p>",
    )


def _curves(run: RunRecord) -> str:
    blue, orange = "#0072B2", "#D55E00"
    charts = [
        line_chart(
            "loss",
            [
                Series("each iteration", _points(run.iterations, "loss"), blue, faint=True),
                Series("smoothed", _points(run.iterations, "smoothed_loss"), blue),
            ],
        ),
        line_chart("learning rate", [Series("rate", _points(run.iterations, "lr"), orange)]),
    ]
    if _counts_images(run):
        speeds = Series("images/s", _points(run.iterations, "images_per_s"), "#009E73")
        charts.append(line_chart("images per second", [speeds]))
    palette = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
    series: dict[str, list[tuple[float, float]]] = {}
    for test in run.tests:
        for name, value in test["scores"].items():
            label = name if not test["net"] else f"{name} (#{test['net']})"
            series.setdefault(label, []).append((test["iter"], value))
    if series:
        lines = [
            Series(name, points, palette[index % len(palette)], dots=True)
            for index, (name, points) in enumerate(series.items())
        ]
        charts.append(line_chart("test scores", lines))
    cells = "".join(f"<div>{chart}</div>" for chart in charts)
    return section("How it learned", f'<div class="two">{cells}</div>')


def _counts_images(run: RunRecord) -> bool:
    """Return whether the net's data come in images, or other records, that are counted (not those of DummyData)."""
    return any(line.get("images_per_s") for line in run.iterations)


def _points(lines: Iterable[dict[str, Any]], name: str) -> list[tuple[float, float]]:
    return [(line["iter"], line[name]) for line in lines if line.get(name) is not None]


def _notes(run: RunRecord, log: str) -> str:
    rows = "".join(
        f'<tr><td>{escape(kind)}</td><td class="left">{"" if at is None else at}</td>'
        f'<td class="left">{escape(text)}</td></tr>'
        for kind, at, text in run.notes[-200:]
    )
    body = f'<div class="scroll"><table>{rows}</table></div>' if rows else ""
    if run.finish is None:
        body += "<p>The log does not tell of an end: the run goes on, or was cut off.</p>"
    elif run.finish.get("stopped_early"):
        body += f"<p>The run was stopped at iteration {run.finish['iter']}.</p>"
    lines = log.rstrip().splitlines()
    if lines:
        warnings = [line for line in lines[:-_LAST_LINES] if line[:1] in "WEF" and line[1:5].isdigit()]
        body += f"<pre>{escape(chr(10).join([*warnings[-_LAST_LINES:], *lines[-_LAST_LINES:]]))}</pre>"
    return section("Notes", body) if body else ""
