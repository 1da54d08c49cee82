"""`engine train` end to end: what it prints, writes and returns."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import h5py
import numpy as np
import pytest

from tests.support.solverkit import CLASSIFIER, data_layer, write_data

_PREFIX = re.compile(r"[IW]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \S+:\d+\] (.*)")


def _log(result):
    """The lines of a run's log without their prefixes."""
    return [match[1] for line in result.stderr.splitlines() if (match := _PREFIX.match(line))]


@pytest.fixture
def run_json(engine):
    def read():
        return [json.loads(line) for line in (engine.folder / "run.json").read_text().splitlines()]

    return read


def test_a_run_logs_caffes_lines_and_json_and_leaves_its_snapshots(engine, run_json):
    result = engine.run("train", "-solver=solver.prototxt", "--json_log", "run.json")
    assert result.returncode == 0, result.stderr
    log = _log(result)
    for line in ("Solving tiny", "Learning Rate Policy: fixed", "Iteration 0, Testing net (#0)",
                 "Iteration 10, lr = 0.1", "Optimization Done.",
                 "Snapshotting to binary proto file tiny_iter_20.caffemodel",
                 "Snapshotting solver state to binary proto file tiny_iter_20.solverstate"):  # fmt: skip
        assert line in log, result.stderr
    assert any(re.match(r"Iteration 10 \(\S+ iter/s, \S+s/10 iters\), loss = 0\.\d+$", line) for line in log)
    assert any(re.match(r"    Test net output #0: accuracy = 1$", line) for line in log)
    assert log[-1].startswith("Snapshot: tiny_iter_20.solverstate")
    assert (engine.folder / "tiny_iter_20.solverstate").is_file()
    assert (engine.folder / "tiny_iter_10.caffemodel").is_file()
    lines = run_json()
    iterations = [line for line in lines if line["event"] == "iteration"]
    assert [line["iter"] for line in iterations] == list(range(20))
    assert iterations[-1]["loss"] < iterations[0]["loss"]
    assert [line["iter"] for line in lines if line["event"] == "test"] == [0, 10, 20]
    assert [line["iter"] for line in lines if line["event"] == "snapshot"] == [10, 20]

    again = engine.run("train", "solver.prototxt", "--snapshot=tiny_iter_10.solverstate", "--json_log=run.json")
    assert again.returncode == 0, again.stderr
    assert "Resuming from tiny_iter_10.solverstate" in _log(again)
    resumed = [line for line in run_json() if line["event"] == "iteration"][20:]
    assert [line["iter"] for line in resumed] == list(range(10, 20))
    assert [line["loss"] for line in resumed] == [line["loss"] for line in iterations[10:]]


@pytest.mark.mpi
@pytest.mark.slow
def test_two_ranks_show_their_communication_and_only_rank_0_speaks(engine, run_json, mpi_ranks):
    engine.write("solver.engine.prototxt", "comm_param { schedule: MGWFBP calibration_iterations: 3 }")
    result = mpi_ranks(2).run(engine.folder, "train", "solver.prototxt", "--json_log=run.json")
    assert result.returncode == 0, result.stderr
    log = _log(result)
    assert log.count("Solving tiny") == 1
    assert any(line.startswith("Schedule mgwfbp: 1 group from 1 layers") for line in log), result.stderr
    assert len([line for line in log if line.startswith("Communication: ")]) == 3
    assert log[-2].endswith("% hidden")
    assert log[-1].startswith("Snapshot: tiny_iter_20.solverstate")
    start, *rest = run_json()
    assert (start["ranks"], start["batch_size"]) == (2, start["batch_size"])
    assert [line["schedule"] for line in rest if line["event"] == "plan"] == ["mgwfbp"]


def test_flags_change_what_the_solver_says(engine, run_json):
    result = engine.run(
        "train", "solver.prototxt", "--max_iter=3", "--progress", "--dtype=float64", "--threads=1",
        "--json_log=run.json",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "Solving tiny (SGD, fixed): 16 parameters" in result.stderr
    assert "Snapshot: tiny_iter_3.solverstate" in result.stderr
    assert not _log(result)
    assert [line["iter"] for line in run_json() if line["event"] == "iteration"] == [0, 1, 2]


def test_weights_are_copied_and_reported(engine):
    assert engine.run("train", "solver.prototxt", "--max_iter=1").returncode == 0
    result = engine.run("train", "solver.prototxt", "--max_iter=1", "--weights=tiny_iter_1.caffemodel")
    assert result.returncode == 0, result.stderr
    assert "Finetuning from tiny_iter_1.caffemodel" in _log(result)


def test_weights_in_the_solvers_own_net_are_logged_by_their_digests(engine):
    blob = f"blobs {{ shape {{ dim: 4 dim: 3 }} data: [{', '.join(['0.123'] * 12)}] }}"
    blobs = f'name: "ip" {blob} blobs {{ shape {{ dim: 4 }} data: [0, 0, 0, 0] }}'
    net = engine.net.replace('name: "ip"', blobs, 1)
    engine.write("solver.prototxt", engine.solver.replace('net: "net.prototxt"', f"net_param {{ {net} }}"))
    result = engine.run("train", "solver.prototxt", "--max_iter=1")
    assert result.returncode == 0, result.stderr
    assert "0.123" not in result.stderr
    assert re.search(r"^# layer 'ip', blob 0: [0-9a-f]{64}$", result.stderr, re.MULTILINE)


@pytest.mark.slow
def test_sigint_stops_after_a_snapshot_with_code_75(engine):
    engine.write("solver.prototxt", engine.solver.replace("max_iter: 20", "max_iter: 10000000"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "mgcaffe.tools.main", "train", "solver.prototxt", "--json_log=run.json"],
        cwd=engine.folder, env=environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 30
        while not list(engine.folder.glob("*_iter_20.solverstate")):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 75, errors
    assert "Optimization stopped early." in errors
    assert "Traceback" not in errors
    last = re.search(r"Snapshot: (\S+)", errors)[1]
    assert (engine.folder / last).is_file()


def test_a_signal_while_candidates_are_measured_ends_that(engine, monkeypatch):
    from mgcaffe.solvers.setup import autotune

    measure = autotune.measure

    def interrupted(asked, bound):
        for number, answer in enumerate(measure(asked, bound)):
            if number == 0:
                signal.raise_signal(signal.SIGUSR1)
            yield answer

    monkeypatch.setattr(autotune, "measure", interrupted)
    before = signal.getsignal(signal.SIGUSR1)
    result = engine.run("train", "solver.prototxt", "--autotune=choices.json")
    assert signal.getsignal(signal.SIGUSR1) == before
    assert result.returncode == 75, result.stderr
    warning = r"autotune: a stop was requested; the rules hold for \d operations that were not measured"
    assert any(re.fullmatch(warning, line) for line in _log(result)), result.stderr
    assert len(json.loads((engine.folder / "choices.json").read_text())["operations"]) == 1


def test_the_stage_of_the_training_net_can_be_chosen(engine):
    engine.write("net.prototxt", engine.net.replace('name: "ip"\n', 'name: "ip"\n  include { stage: "with" }\n'))
    result = engine.run("train", "solver.prototxt", "-stage", "with", "--max_iter=1")
    # The test net is not in the stage and lacks the layer, as in Caffe.
    assert result.returncode == 65
    assert "'ip'" in result.stderr
    engine.write("solver.prototxt", engine.solver + 'test_state { stage: "with" }\n')
    result = engine.run("train", "solver.prototxt", "-stage", "with", "--max_iter=1")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("field", ["decoupled_weight_decay", "row_wise_adagrad"])
def test_flags_stand_for_fields_of_our_own(tmp_path, field):
    from mgcaffe.tools.commands.train import parser
    from mgcaffe.tools.running.training_run import read_solver

    path = tmp_path / "solver.prototxt"
    path.write_text("base_lr: 1")
    for flags, expected in ([], False), ([f"--{field}"], True):
        read = read_solver(parser().parse([str(path), *flags]), str(path))
        assert getattr(read.param, field) is expected


def test_autotune_is_a_flag_and_a_field_and_its_file_has_to_be_one(tmp_path):
    from mgcaffe.errors import UsageError
    from mgcaffe.tools.commands.train import parser
    from mgcaffe.tools.running.training_run import read_solver

    path = tmp_path / "solver.prototxt"
    for text, flags, expected in (
        ("", [], "off"),
        ("", ["--autotune=on"], "on"),
        ('autotune: "on"', [], "on"),
        ('autotune: "on"', ["--autotune=choices.json"], "choices.json"),
    ):
        path.write_text(f"base_lr: 1 {text}")
        assert read_solver(parser().parse([str(path), *flags]), str(path)).param.autotune == expected
    with pytest.raises(UsageError, match="autotune"):
        parser().parse([str(path), "--autotune=a\0b"])


def test_recompute_is_a_flag_and_a_field(tmp_path):
    from mgcaffe.tools.commands.train import parser
    from mgcaffe.tools.running.training_run import read_solver

    path = tmp_path / "solver.prototxt"
    for text, flags, expected in (
        ("", [], "off"),
        ('recompute: "auto"', [], "auto"),
        ('recompute: "auto"', ["--recompute=conv1..relu3"], "conv1..relu3"),
        ('recompute: "auto"', ["--recompute=off"], "off"),
    ):
        path.write_text(f"base_lr: 1 {text}")
        assert read_solver(parser().parse([str(path), *flags]), str(path)).param.recompute == expected


def test_precision_is_a_flag_and_a_field_and_the_log_has_it(engine, run_json):
    engine.write("solver.prototxt", f'{engine.solver}\nprecision: "tf32"')
    result = engine.run("train", "solver.prototxt")
    assert result.returncode == 65, result.stderr
    assert "solver.prototxt:" in result.stderr
    assert "precision 'tf32': only GPUs compute products in TF32" in result.stderr
    result = engine.run("train", "solver.prototxt", "--max_iter=1", "--precision=bf16", "--json_log=run.json")
    assert result.returncode == 0, result.stderr
    assert any(line.startswith("products are computed in bf16;") for line in _log(result))
    assert [line["precision"] for line in run_json() if line["event"] == "start"] == ["bf16"]
    result = engine.run("train", "solver.prototxt", "--max_iter=1", "--precision=fp16")
    assert result.returncode == 0, result.stderr
    assert any("products are computed in fp16;" in line and "begins at 65536" in line for line in _log(result))


def test_winograd_is_a_flag_and_a_field(tmp_path):
    from mgcaffe.prototxt import SolverParameter
    from mgcaffe.tools.commands.train import parser
    from mgcaffe.tools.running.training_run import read_solver

    path = tmp_path / "solver.prototxt"
    path.write_text("base_lr: 1 winograd: FAST")
    for flags, expected in (([], "FAST"), (["--winograd=safe"], "SAFE"), (["--winograd=off"], "OFF")):
        read = read_solver(parser().parse([str(path), *flags]), str(path))
        assert SolverParameter.Winograd.Name(read.param.winograd) == expected


def test_several_workers_are_logged_and_counted(engine, run_json):
    listing = write_data(engine.folder, records=16, classes=3)
    engine.write("net.prototxt", data_layer(listing, 2) + CLASSIFIER)
    engine.write("solver.prototxt", re.sub("test_i.*", "", engine.solver))
    flags = ["--hogwild_threads=3", "--hogwild_lock", "--json_log=run.json"]
    result = engine.run("train", "solver.prototxt", *flags)
    assert result.returncode == 0, result.stderr
    assert any(line.startswith("Hogwild: 3 workers update one replica one at a time") for line in _log(result))
    start, finish = run_json()[1], run_json()[-1]
    assert (start["event"], start["workers"], start["batch_size"]) == ("start", 3, 6)
    assert (finish["event"], finish["images"], finish["iterations"]) == ("finish", 20 * 6, [20])


def test_a_workers_loss_that_is_not_finite_ends_the_run_with_code_71(engine):
    listing = write_data(engine.folder, records=8, classes=3)
    with h5py.File(engine.folder / "data.h5", "r+") as file:
        file["data"][3] = np.inf
    engine.write("net.prototxt", data_layer(listing, 2) + CLASSIFIER)
    engine.write("solver.prototxt", re.sub("test_i.*", "", engine.solver))
    result = engine.run("train", "solver.prototxt", "--hogwild_threads=2")
    assert result.returncode == 71, result.stderr
    assert "iteration 0 of worker 1: a loss or gradient is not finite" in result.stderr
    assert "Traceback" not in result.stderr
