"""`engine train --sync` under mpirun: trainers at their own pace, stopped by a signal to one of them, and resumed."""

from __future__ import annotations

import json
import os
import re
import signal

from tests.support.mpirun import rank_pids

NET = """
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 4 dim: 3 } shape { dim: 4 }
    data_filler { type: "gaussian" } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: 10000000 snapshot: 50 snapshot_prefix: "net"
snapshot_keep: 2 random_seed: 7 solver_mode: CPU
"""


def test_a_signal_to_one_trainer_stops_all_and_they_go_on_from_there(tmp_path, mpi_ranks):
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    command = ["train", "solver.prototxt", "--sync=shadow_easgd"]
    ranks = mpi_ranks(2)
    ranks.start(tmp_path, *command)
    assert ranks.await_((tmp_path / "net_iter_50.solverstate").exists, 120)
    os.kill(rank_pids(ranks.job)[1], signal.SIGUSR1)
    result = ranks.end(60)
    assert result.returncode == 75, result.stderr
    states = sorted(tmp_path.glob("net_iter_*.solverstate"), key=lambda path: path.stat().st_mtime)
    stopped_at = int(states[-1].stem.rpartition("_")[2])

    more = ["--snapshot=auto", f"--max_iter={stopped_at + 200}", "--json_log=log.json", "--hogwild_threads=2"]
    result = ranks.run(tmp_path, *command, *more)
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in (tmp_path / "log.json").read_text().splitlines()]
    (went_on,) = (text for line in lines if "2 trainers go on at iteration" in (text := line.get("text", "")))
    assert any(
        "taken with 1 Hogwild worker(s) a rank and training goes on with 2" in line.get("text", "") for line in lines
    )
    assert any("2 workers update one replica without a lock" in line.get("text", "") for line in lines)
    finish = lines[-1]
    # Each goes at its own pace: one that was stopped beyond the end has nothing left to do.
    begun = [int(each) for each in re.findall(r"\d+", went_on.partition("go on at")[2].partition("from")[0])]
    expected = [max(stopped_at + 200, each) for each in (begun if len(begun) == 2 else begun * 2)]
    assert finish["event"] == "finish" and finish["iterations"] == expected and begun[0] == stopped_at
    assert finish["synchronizations"] > 0 and finish["gap"] > 0
