"""The device of these tests: a GPU where there is one, otherwise its stand-in, so that each of them runs everywhere."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.support.stand_in_gpu import stand_in_gpu

RESULTS = os.environ.get("MGCAFFE_GPU_RESULTS")
"""A file that gets a line of JSON for every test, as soon as it has ended (`python tests/gpu`)."""


@pytest.fixture(autouse=True)
def device() -> Iterator[torch.device]:
    """Return the first GPU, or the stand-in's."""
    if torch.cuda.is_available():
        yield torch.device("cuda", 0)
        return
    with stand_in_gpu() as made:
        yield made


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down what became of a test."""
    if RESULTS is None or (report.when != "call" and report.passed):
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    message = str(getattr(crash, "message", report.longrepr or ""))
    if report.skipped and isinstance(report.longrepr, tuple):
        message = str(report.longrepr[2]).removeprefix("Skipped: ")
    row = {
        "test": report.nodeid,
        "outcome": report.outcome,
        "s": report.duration,
        "message": message,
    }
    with Path(RESULTS).open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
