"""The tables of `benchmarks/pytorch.py`, from figures that a job would bring."""

import importlib.util
import sys

import pytest
import pytorch_worker

from tests.support.paths import ROOT


@pytest.fixture
def benchmark(monkeypatch):
    """The benchmark as a module, whose name is that of a folder here."""
    place = importlib.util.spec_from_file_location("pytorch_benchmark", ROOT / "benchmarks" / "pytorch.py")
    module = importlib.util.module_from_spec(place)
    monkeypatch.setitem(sys.modules, "pytorch_benchmark", module)
    place.loader.exec_module(module)
    return module


def measured(benchmark, factor=1.0):
    settings = benchmark.Settings("gpt", benchmark.SYSTEMS, 3, 1.0, 10)
    turns = {"auto": [0.9, 1.8, 0.9], "default": [1.0, 2.0, 1.0], "5": [0.8, 1.6, 1.0], "none": [0.5, 0.5, 0.5]}
    found = {
        "turns": {name: [factor * value for value in values] for name, values in turns.items()},
        "backward_s": 0.3,
        "end_s": {"auto": 0.7, "default": 0.8, "5": 0.6},
        "groups": {"auto": 4},
        "bytes": 4_000_000,
        "search": {"iterations": 30, "seconds": 20.0},
    }
    return benchmark.Measured(settings, found)


def test_ratios_are_those_within_a_round_and_predictions_stand_beside(benchmark):
    row = measured(benchmark).row()
    assert "| 1000 (1000) | 5: 1000 (800) | 900 (900), 4 | 0.900 +- 0.000 | 0.900 |" in row
    assert "30 steps, 20 s" in row


def test_a_row_replaces_that_of_the_same_model_and_heading(benchmark, monkeypatch, tmp_path):
    page = tmp_path / "pytorch.md"
    page.write_text("# Title\n")
    monkeypatch.setattr(benchmark, "RESULTS", page)
    for heading in ("2 hosts, 1gbit", "2 ranks on one host"):
        benchmark.write(measured(benchmark).row(), "gpt", heading)
    benchmark.write(measured(benchmark, 2.0).row(), "gpt", "2 hosts, 1gbit")
    benchmark.write(measured(benchmark).row().replace("gpt", "resnet18"), "resnet18", "2 hosts, 1gbit")
    lines = page.read_text().splitlines()
    assert [line for line in lines if line.startswith("## ")] == ["## 2 hosts, 1gbit", "## 2 ranks on one host"]
    rows = [line.split(" | ")[:3] for line in lines if line.startswith(("| gpt", "| resnet18"))]
    assert rows == [["| resnet18", "4.0", "500"], ["| gpt", "4.0", "1000"], ["| gpt", "4.0", "500"]]
    assert len([line for line in lines if line.startswith("| model")]) == 2


def test_bucket_sizes_that_hold_the_whole_module_are_run_once():
    assert pytorch_worker.without_equals(["auto", "1", "5", "25", "100", "none"], 4 * 2**20) == [
        "auto",
        "1",
        "5",
        "none",
    ]
