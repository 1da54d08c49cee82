"""The picture of an iteration: what is written into it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mgcaffe.tools.report.iteration_picture import iteration_picture
from mgcaffe.tools.report.spans import Box, TimelineData


@pytest.mark.parametrize(
    ("waits_until", "names"), [(0.1, ["data"]), (5.0, ["wait for data", "data"]), (9.9, ["wait for data"])]
)
def test_a_layers_name_stands_beside_the_wait_for_its_data(waits_until, names):
    boxes = [
        Box(0, "iteration 5", "iteration", 0.0, 20.0, {"iteration": 5}),
        Box(0, "data", "forward", 0.0, 10.0, {}),
        Box(0, "wait for data", "data", 0.0, waits_until, {}),
    ]
    picture = iteration_picture(TimelineData(Path("t.json"), [{}], [5], None, boxes), 5)
    texts = re.findall(r'<text x="([\d.]+)"[^>]*>([^<]*)</text>', picture)
    wait = re.search(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"[^>]*><title>data wait', picture)
    assert wait
    covered = float(wait[1]) + float(wait[2])
    assert all(float(x) > covered for x, text in texts if text == "data")
    assert {text for _, text in texts} >= set(names)
