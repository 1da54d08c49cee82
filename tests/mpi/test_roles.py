"""`engine train --sync_servers` under mpirun and under the launcher: a stop, and a trainer's death.

A server's death: tests/soak/killed_trainers.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from tests.support.jobs import RunningJob
from tests.support.mpirun import AS_ROOT, rank_pids

NET = """
layer { name: "data" type: "DummyData" top: "data" top: "label"
  dummy_data_param { shape { dim: 4 dim: 3 } shape { dim: 4 }
    data_filler { type: "gaussian" } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 2 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
SOLVER = """
net: "net.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: 10000000 snapshot: 50 snapshot_prefix: "net"
snapshot_keep: 2 random_seed: 7 solver_mode: CPU comm_param { sync: SHADOW_EASGD sync_servers: 1 }
"""
# Messages of 37 KiB, which do not travel before their receiver takes them.
TABLE = """
layer { name: "ids" type: "DummyData" top: "ids" top: "wanted" dummy_data_param {
  shape { dim: 600 dim: 2 } shape { dim: 600 dim: 16 }
  data_filler { type: "uniform" min: 0 max: 999 } data_filler { value: 0.1 } } }
layer { name: "table" type: "EmbeddingBag" bottom: "ids" top: "pooled"
  embedding_bag_param { input_dim: 1000 num_output: 16 } }
layer { name: "close" type: "EuclideanLoss" bottom: "pooled" bottom: "wanted" top: "close" }
"""
COMMAND = ("train", "solver.prototxt")


def _write(folder):
    (folder / "net.prototxt").write_text(NET)
    (folder / "solver.prototxt").write_text(SOLVER)


def test_a_stop_asked_of_a_server_stops_the_run_which_goes_on_from_there(tmp_path, mpi_ranks):
    _write(tmp_path)
    ranks = mpi_ranks(3)
    ranks.start(tmp_path, *COMMAND)
    assert ranks.await_((tmp_path / "net_iter_50.solverstate").exists, 120)
    os.kill(rank_pids(ranks.job)[2], signal.SIGTERM)
    result = ranks.end(60)
    assert result.returncode == 75 and "error" not in result.stderr, result.stderr
    assert "Roles: 2 trainers (ranks 0-1), 1 synchronization server (rank 2)" in result.stderr
    assert "SIGTERM at rank 2 (synchronization server): stopping after this iteration" in result.stderr

    states = sorted(tmp_path.glob("net_iter_*.solverstate"), key=lambda path: path.stat().st_mtime)
    end = int(states[-1].stem.rpartition("_")[2]) + 100
    more = ["--snapshot=auto", f"--max_iter={end}", "--json_log=log.json", "--sync=easgd"]
    result = ranks.run(tmp_path, *COMMAND, *more)
    assert result.returncode == 0 and "is of another rule" not in result.stderr, result.stderr
    assert (
        "synchronized by EASGD every 5 iterations (alpha 0.2, the centre on 1 synchronization server)" in result.stderr
    )
    finish = json.loads((tmp_path / "log.json").read_text().splitlines()[-1])
    assert finish["event"] == "finish" and finish["iterations"][0] == end and finish["synchronizations"] == 20


def test_training_goes_on_without_a_trainer_that_is_killed(tmp_path):
    """Trainers of two workers each, with both kinds of servers."""
    _write(tmp_path)
    (tmp_path / "net.prototxt").write_text(NET + TABLE)
    flags = ["--on_trainer_loss=continue", "--embedding_servers=1", "--hogwild_threads=2", "--sync_interval_ms=5"]
    command = [sys.executable, "-m", "mgcaffe.tools.main", *COMMAND, "-np", "5", *flags]
    with RunningJob(command, environment=AS_ROOT, cwd=tmp_path) as job:
        assert job.await_(lambda: (tmp_path / "net_iter_50.solverstate").exists(), 120)
        os.kill(rank_pids(job)[1], signal.SIGKILL)
        assert job.await_(lambda: not (tmp_path / "net_iter_50.solverstate").exists(), 60)  # two newer ones are there
        job.process.send_signal(signal.SIGTERM)
        result = job.end(60)
    assert result.returncode == 75 and not result.left_behind and "error: " not in result.stderr, result.describe()
    assert (
        "rank 1 (trainer) is gone: training goes on without it, and its share of the data (1 record of 3)"
        in result.stderr
    )
