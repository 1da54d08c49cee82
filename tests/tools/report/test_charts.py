"""The charts of reports: what is written in them can be read."""

from __future__ import annotations

import re

from mgcaffe.tools.report.charts import schedule_chart


def texts(drawing: str) -> dict[str, float]:
    """Return where each text of a drawing stands, in pixels from its left edge."""
    return {text: float(x) for x, text in re.findall(r'<text x="([\d.]+)"[^>]*>([^<]*)</text>', drawing)}


def test_names_of_plans_fit_into_the_picture_and_times_stand_behind_both_bars():
    plan = "buckets of 0.025 MiB, overlap_forward"
    trials = [
        {"plan": plan, "groups": 2, "blocking": True, "measured_ms": 7.0, "exposed_ms": 1.0, "predicted_ms": 9.0},
        {"plan": "single", "groups": 1, "blocking": False, "measured_ms": 9.0, "exposed_ms": 1.0, "predicted_ms": 7.0},
        {"plan": "wfbp", "groups": 4, "predicted_ms": 9.0},
    ]
    drawing = schedule_chart(trials, 0)
    found = texts(drawing)
    name = f"{plan}, blocking: 2 groups"
    assert found[name] == found["single: 1 group"] >= 7 * len(name)
    assert found["7.00 ms — chosen"] == found["9.00 ms"] == found["9.00 ms predicted"] > found[name]
    long = schedule_chart([{**trials[0], "plan": "x" * 500}], None)
    assert max(texts(long).values()) < 1120 and "…" in long
    short = texts(schedule_chart(trials[1:], None))
    assert short["single: 1 group"] < found["single: 1 group"]
