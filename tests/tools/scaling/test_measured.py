"""`engine simulate --sync --run`: what the JSON log of a run gives."""

from __future__ import annotations

import json

import pytest

from mgcaffe.errors import DataError
from mgcaffe.tools import main
from mgcaffe.tools.scaling.measured import MeasuredRun, read_measured


def log(path, rounds=50, images_per_s=1600.0, workers=1):
    lines = [{"event": "start", "net": "digits", "ranks": 2, "workers": workers}]
    for number in range(20):
        seconds = 0.5 if number == 0 else 0.02
        rate = images_per_s and images_per_s * 0.02 / seconds
        lines.append({"event": "iteration", "iter": number, "loss": 1.0, "seconds": seconds, "images_per_s": rate})
    for number, done in ((0, 0), (19, rounds)):
        lines.append(
            {
                "event": "sync", "iter": number, "iterations": [number, number], "rounds": [], "distances": [],
                "gap": None, "synchronizations": done, "sync_bytes": 4000 * done, "sync_ms": 60.0 if done else None,
                "sync_processor_s": 0.01 * done,
            }
        )  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_the_figures_of_rank_0(tmp_path):
    assert read_measured(log(tmp_path / "run.json")) == MeasuredRun(0.02, 32, 4000, pytest.approx(0.06), 0.01)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"rounds": 0}, "no synchronization of replicas is in it"),
        ({"images_per_s": None}, "says nothing about the records"),
    ],
)
def test_a_log_of_something_else_is_refused(tmp_path, facts, message):
    with pytest.raises(DataError, match=message):
        read_measured(log(tmp_path / "run.json", **facts))


def test_a_run_gives_what_flags_leave_out(tmp_path, capsys):
    path = log(tmp_path / "run.json")

    def predicted(*words):
        command = ["simulate", "--sync=ma,shadow_ma", f"--run={path}", "--trainers=4", "--sync_every=5", *words]
        assert main.main([*command, f"--json={tmp_path / 'out.json'}"]) == 0
        return json.loads((tmp_path / "out.json").read_text())

    ma, shadow = predicted()
    assert "all-reduce 50 ms as in the run, processor time 10 ms" in capsys.readouterr().out
    assert ma["examples_per_s"] == pytest.approx(4 * 32 / (0.02 + 0.06 / 5)) and ma["round_s"] == pytest.approx(0.06)
    assert shadow["examples_per_s"] == pytest.approx(4 * 32 / 0.02 * (1 - 1 / 6))
    assert shadow["bytes_per_s"] == pytest.approx(4000 / 0.06)
    ma, _ = predicted("--iteration_ms=40", "--batch=8", "--sync_processor_ms=0", "--sync_ms=30")
    assert ma["examples_per_s"] == pytest.approx(4 * 8 / (0.04 + 0.03 / 5))
    ma, _ = predicted("--bandwidth=8gbit", "--parameter_bytes=10000000")
    assert ma["round_s"] == pytest.approx(0.01 + 2 * 3 / 4 * 0.01)


@pytest.mark.parametrize("words", [(), ("--hogwild_threads=4",)])
def test_records_of_a_run_with_several_workers_count_once(tmp_path, words):
    path = log(tmp_path / "run.json", workers=4)  # 32 records an iteration, of all workers
    command = ["simulate", "--sync=none", f"--run={path}", "--trainers=2", f"--json={tmp_path / 'out.json'}", *words]
    assert main.main(command) == 0
    (alone,) = json.loads((tmp_path / "out.json").read_text())
    assert alone["examples_per_s"] == pytest.approx(2 * 32 / 0.02)
