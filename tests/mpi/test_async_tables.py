"""`engine train --sync` under mpirun, without servers: two trainers hold the tables for each other, to the end."""

from __future__ import annotations

import json

from tests.support.tablekit import KINDS, table_net, train_tables, write_table_data

FLAGS = ["--sync=shadow_ma", "--dtype=float64", "--json_log=log.json"]


def test_trainers_answer_each_other_to_the_end_and_snapshots_go_on_in_one_process(tmp_path, mpi_ranks):
    write_table_data(tmp_path)
    net = table_net(tmp_path, 2)
    (tmp_path / "net.prototxt").write_text(net)
    fields = KINDS["AdaGrad"] + f' snapshot_prefix: "{tmp_path}/net" max_iter: 40 snapshot: 20'
    (tmp_path / "solver.prototxt").write_text(
        f'net: "net.prototxt" base_lr: 0.05 lr_policy: "fixed" display: 20 solver_mode: CPU random_seed: 7 {fields}'
    )
    result = mpi_ranks(2).run(tmp_path, "train", "solver.prototxt", *FLAGS)
    assert result.returncode == 0 and "error" not in result.stderr, result.stderr
    assert "Tables divided among ranks: rank 0 1 table" in result.stderr
    lines = [json.loads(line) for line in (tmp_path / "log.json").read_text().splitlines()]
    assert lines[-1]["event"] == "finish" and lines[-1]["iterations"] == [40, 40]
    (end,) = [line for line in lines if line["event"] == "look_ups" and line["iter"] == 40]
    assert end["look_ups"] >= 40 and 0 < end["waited_ms"] <= end["latency_ms"]
    before = lines[next(place for place, line in enumerate(lines) if line["event"] == "iteration")]["loss"]
    for iteration in (20, 40):
        state = f"{tmp_path}/net_iter_{iteration}.solverstate"
        _, losses, _ = train_tables(1, tmp_path, net, fields, 5, restore=state)
        assert sum(losses) / len(losses) < before
