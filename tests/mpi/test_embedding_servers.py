"""`engine train --embedding_servers` under mpirun: two trainers at their own pace, tables on a server, a snapshot."""

from __future__ import annotations

import json

from tests.support.tablekit import KINDS, table_net, train_tables, write_table_data

COMMAND = ["train", "solver.prototxt"]
FLAGS = ["--sync=shadow_ma", "--embedding_servers=1", "--lookahead=2", "--dtype=float64", "--json_log=log.json"]


def test_trainers_look_up_on_a_server_to_the_end_and_the_snapshot_goes_on_in_one_process(tmp_path, mpi_ranks):
    write_table_data(tmp_path)
    net = table_net(tmp_path, 2)
    (tmp_path / "net.prototxt").write_text(net)
    fields = KINDS["AdaGrad"] + f' snapshot_prefix: "{tmp_path}/net" max_iter: 40'
    (tmp_path / "solver.prototxt").write_text(
        f'net: "net.prototxt" base_lr: 0.05 lr_policy: "fixed" display: 20 solver_mode: CPU random_seed: 7 {fields}'
    )
    tried = mpi_ranks(3).run(tmp_path, *COMMAND, *FLAGS, "--dry_run")
    assert tried.returncode == 0 and "The run can start." in tried.stdout, tried.stderr
    assert not list(tmp_path.glob("*.solverstate"))
    result = mpi_ranks(3).run(tmp_path, *COMMAND, *FLAGS)
    assert result.returncode == 0 and "error" not in result.stderr, result.stderr
    assert "Roles: 2 trainers (ranks 0-1), 1 embedding server (rank 2)" in result.stderr
    assert "Tables divided among embedding servers: rank 2 3 tables" in result.stderr
    assert "\nLook-ups: " in result.stderr.replace("] ", "\n")
    lines = [json.loads(line) for line in (tmp_path / "log.json").read_text().splitlines()]
    assert lines[-1]["event"] == "finish" and lines[-1]["iterations"] == [40, 40]
    (end,) = [line for line in lines if line["event"] == "look_ups" and line["iter"] == 40]
    assert end["look_ups"] >= 40 and 0 < end["waited_ms"] <= end["latency_ms"]
    before = lines[next(place for place, line in enumerate(lines) if line["event"] == "iteration")]["loss"]
    _, losses, _ = train_tables(1, tmp_path, net, fields, 5, restore=f"{tmp_path}/net_iter_40.solverstate")
    assert sum(losses) / len(losses) < before
