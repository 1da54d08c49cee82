"""`engine simulate`: the table, the JSON, the plot, and the numbers of workers that users may ask for."""

from __future__ import annotations

import argparse
import json

import pytest

from mgcaffe.tools import main, speedup_plot
from mgcaffe.tools.flags.workers import worker_counts
from tests.support.paths import GOLDEN

TRACE = str(GOLDEN / "traces" / "googlenet_k80_batch64.csv")
RING = "ring:alpha=45.25e-6,beta=9.93e-10,gamma=2.5e-9"


@pytest.fixture
def simulate(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def run(*words):
        code = main.main(["simulate", *words])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


def test_the_papers_figures_from_the_command_line(simulate, tmp_path):
    code, out, _ = simulate(
        "--trace", TRACE, "--network", RING, "--workers", "4,8,...,2048",
        "--schedules", "wfbp,single,threshold,mgwfbp,optimal", "--forward-ratio", "0.5", "--json", "out.json",
    )  # fmt: skip
    assert code == 0
    results = json.loads((tmp_path / "out.json").read_text())
    assert len(results) == 10 * 5
    assert set(results[0]) == {"workers", "schedule", "iteration_s", "speedup", "exposed_s", "groups"}
    speedups = {(row["workers"], row["schedule"]): row["speedup"] for row in results}
    for schedule, expected in (("wfbp", 28.0), ("single", 35.8), ("mgwfbp", 48.3), ("optimal", 53.6)):
        assert speedups[64, schedule] == pytest.approx(expected, rel=0.01)
    assert speedups[128, "mgwfbp"] == pytest.approx(74.5, rel=0.01)
    assert speedups[128, "optimal"] == pytest.approx(100.0, rel=0.01)
    assert "64 layers with 13,379,136 parameters (51.04 MiB); forward 102.67 ms, backward 205.33 ms" in out
    (line,) = [line.split() for line in out.splitlines() if line.split()[:2] == ["64", "optimal"]]
    assert line == ["64", "optimal", "5", "367.96", "ms", "59.96", "ms", "53.57", "83.7", "%"]


def test_ratio_scale_and_bucket_change_the_prediction(simulate, tmp_path):
    def iterations(*words):
        code, _, errors = simulate(TRACE, "--network", RING, "--workers=16", "--json=out.json", *words)
        assert code == 0, errors
        return {row["schedule"]: row["iteration_s"] for row in json.loads((tmp_path / "out.json").read_text())}

    plain = iterations()
    assert iterations("--forward_ratio=1")["single"] == pytest.approx(plain["single"] + 0.5 * 0.20533, abs=1e-4)
    assert iterations("--backward_scale=0.1")["single"] < plain["single"] - 0.9 * 0.308
    assert iterations("--bucket_mb=4")["threshold"] < plain["threshold"]
    assert list(iterations("--schedules=optimal,single")) == ["optimal", "single"]


def test_a_plot_is_drawn(simulate, tmp_path):
    pytest.importorskip("matplotlib")
    code, _, errors = simulate(TRACE, "--network", RING, "--plot=out.png")
    assert code == 0, errors
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    code, _, errors = simulate(TRACE, "--network", RING, "--plot=out.xyz")
    assert code == 2 and "the name should end in one of .png, .svg, .pdf" in errors
    code, _, errors = simulate(TRACE, "--network", RING, "--plot=absent/out.png")
    assert code == 73 and "cannot write absent/out.png" in errors


def test_without_matplotlib_a_plot_is_refused_before_any_work(simulate, monkeypatch):
    monkeypatch.setattr(speedup_plot.importlib.util, "find_spec", lambda name: None)
    code, out, errors = simulate(TRACE, "--network", RING, "--plot=out.png")
    assert (code, out) == (2, "")
    assert "matplotlib, which is not installed\n  pip install 'mgcaffe[plot]'" in errors


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ((TRACE,), 2, "the network is missing"),
        (("--network", RING), 2, "the trace is missing"),
        (("absent.csv", "--network", RING), 65, "cannot read a trace"),
        ((TRACE, "--network", "ring:alpha=1"), 2, "beta missing"),
        ((TRACE, "--network", RING, "--schedules=optimum"), 2, "unknown schedule 'optimum'"),
        ((TRACE, "--network", RING, "--schedules=auto"), 2, "cannot be predicted"),
        ((TRACE, "--network", RING, "--schedules="), 2, "no schedule is given"),
        ((TRACE, "--network", RING, "--workers=0"), 2, "'0' is not a number of workers"),
        ((TRACE, "--network", RING, "--backward_scale=0"), 2, "0 is not above 0"),
        ((TRACE, "--network", RING, "--json=absent/out.json"), 73, "cannot write"),
    ],
)
def test_mistakes_are_reported_in_one_message(simulate, words, code, message):
    result = simulate(*words)
    assert result[0] == code and message in result[2]
    assert "Traceback" not in result[2]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("8", [8]),
        ("8,2,8", [2, 8]),
        ("4,8,...,64", [4, 8, 16, 32, 64]),
        ("4,...,64", [4, 8, 16, 32, 64]),
        ("1,10,...,1000", [1, 10, 100, 1000]),
        ("16,24,...,48", [16, 24, 32, 40, 48]),
        ("1,4,8,…,32,48", [1, 4, 8, 16, 32, 48]),
        ("5,10,20,...,500", [5, 10, 20, 50, 100, 200, 500]),
        ("1,...,10", [1, 2, 5, 10]),
        ("10,20,...,80", [10, 20, 40, 80]),
        ("4:32", [4, 8, 16, 32]),
        ("4:40:3x", [4, 12, 36]),
        ("16:64:16,2", [2, 16, 32, 48, 64]),
    ],
)
def test_numbers_of_workers(text, counts):
    assert worker_counts(text) == counts


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no number of workers"),
        ("4,x", "'x' is not a number of workers"),
        ("-4", "'-4' is not a number of workers"),
        ("0", "'0' is not a number of workers"),
        ("...,8", "stands between two numbers"),
        ("4,...", "stands between two numbers"),
        ("4,8,...,100", "goes on to 64 and does not meet 100"),
        ("8:4", "does not ascend"),
        ("4:8:1x", "does not ascend"),
        ("4:8:0", "does not ascend"),
        ("1:1000000:1", "more than 1000"),
    ],
)
def test_what_is_no_number_of_workers(text, words):
    with pytest.raises(argparse.ArgumentTypeError, match=words):
        worker_counts(text)
