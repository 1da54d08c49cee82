"""`engine simulate --sync`: its tables, CSV and plot."""

from __future__ import annotations

import csv

import pytest

from mgcaffe.tools import main

ALL = ("simulate", "--sync=all", "--iteration_ms=20", "--batch=200", "--parameter_bytes=10000000", "--bandwidth=25gbit")


def rows(text, title):
    """The cells under one of the tables' heads."""
    _, _, after = text.partition(f"trainers: {title} ")
    lines = after.partition("\n\n")[0].splitlines()[2:]
    return {line[: line.index("  ")]: line.split("  ")[1:] for line in lines}


def test_the_tables(capsys):
    assert main.main([*ALL, "--sync_servers=2", "--trainers=8,500", "--sync_every=5,30", "--hogwild_threads=2"]) == 0
    out = capsys.readouterr().out
    assert "a trainer: 2 workers, iteration 20.00 ms, batch 200: 20,000 examples/s by itself" in out
    assert "9.5 MiB of parameters, 2 synchronization servers, links of 25 Gbit/s, all-reduce ring" in out
    speeds = rows(out, "examples/s")
    # What comes to the same stands in one row.
    assert list(speeds) == [
        "none", "ma, bmuf every 5", "ma, bmuf every 30", "easgd every 5", "easgd every 30", "ds_sync every 5",
        "ds_sync every 30", "shadow_ma, shadow_bmuf", "shadow_easgd",
    ]  # fmt: skip
    assert [cell.strip() for cell in speeds["none"] if cell] == ["160,000", "10,000,000"]
    assert [cell.strip() for cell in speeds["easgd every 5"] if cell] == ["141,844", "312,500"]
    assert list(rows(out, "gap (k in the foreground)")) == ["shadow_ma, shadow_bmuf", "shadow_easgd"]
    assert "none" not in rows(out, "MB/s handed over by each")
    assert list(rows(out, "MB/s of each server")) == ["easgd every 5", "easgd every 30", "shadow_easgd"]
    assert "event by event" not in out


def test_what_was_simulated_by_events_is_named(capsys):
    assert main.main([*ALL, "--sync_servers=2", "--trainers=4", "--sync_every=5", "--spread=0.3"]) == 0
    out = capsys.readouterr().out
    assert out.rstrip().endswith("Simulated event by event, the rest by formulas: easgd every 5; ds_sync every 5")
    assert "iteration 20.00 ms, spread 0.3, batch 200" in out


def test_one_trainer_synchronizes_with_nobody(capsys):
    assert main.main([*ALL, "--trainers=1"]) == 0
    out = capsys.readouterr().out
    assert "gap" not in out and "10,000" in out


def test_the_csv_has_a_row_for_each_prediction(tmp_path, capsys):
    assert main.main([*ALL, "--trainers=8,500", "--sync_every=5", f"--csv={tmp_path / 'out.csv'}"]) == 0
    with (tmp_path / "out.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert len(table) == 2 * 8
    assert table[0] == {
        "sync": "none", "every": "", "trainers": "8", "examples_per_s": "80000.0", "gap": "", "round_s": "0.0",
        "bytes_per_s": "0.0", "server_bytes_per_s": "0.0", "is_simulated": "False",
    }  # fmt: skip
    assert [row["every"] for row in table if row["sync"] == "ma"] == ["5", "5"]


def test_a_plot_is_drawn(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    assert main.main([*ALL, "--sync_servers=2", "--plot=out.png"]) == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert main.main([*ALL, "--plot=out.xyz"]) == 2
    assert "the name should end in one of .png, .svg, .pdf" in capsys.readouterr().err
