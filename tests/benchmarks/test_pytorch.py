"""The tables of `benchmarks/pytorch.py`, from figures that a job would bring."""

import pytorch_table
import pytorch_worker


def measured(factor=1.0):
    turns = {"auto": [0.9, 1.8, 0.9], "default": [1.0, 2.0, 1.0], "5": [0.8, 1.6, 1.0], "none": [0.5, 0.5, 0.5]}
    found = {
        "turns": {name: [factor * value for value in values] for name, values in turns.items()},
        "backward_s": 0.3,
        "end_s": {"auto": 0.7, "default": 0.8, "5": 0.6},
        "groups": {"auto": 4},
        "bytes": 4_000_000,
        "search": {"iterations": 30, "seconds": 20.0},
    }
    return pytorch_table.Measured("gpt", found)


def test_ratios_are_those_within_a_round_and_predictions_stand_beside():
    row = measured().row()
    assert "| 1000 (1000) | 5: 1000 (800) | 900 (900), 4 | 0.900 +- 0.000 | 0.900 |" in row
    assert "30 steps, 20 s" in row


def test_a_row_replaces_that_of_the_same_model_and_heading(monkeypatch, tmp_path):
    page = tmp_path / "pytorch.md"
    page.write_text("# Title\n")
    monkeypatch.setattr(pytorch_table, "RESULTS", page)
    for heading in ("2 hosts, 1gbit", "2 ranks on one host"):
        pytorch_table.write(measured().row(), "gpt", heading)
    pytorch_table.write(measured(2.0).row(), "gpt", "2 hosts, 1gbit")
    pytorch_table.write(measured().row().replace("gpt", "resnet18"), "resnet18", "2 hosts, 1gbit")
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
