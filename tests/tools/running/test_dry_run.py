"""`engine train --dry_run`: everything once, a report, and nothing left behind."""

from __future__ import annotations

import re

import pytest


def files(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def test_everything_is_done_once_and_nothing_is_left(engine):
    before = files(engine.folder)
    result = engine.run(
        "train", "solver.prototxt", "--dry_run", "--json_log=run.json", "--log_dir=logs", "--autotune=new.json"
    )
    assert result.returncode == 0, result.stderr
    assert files(engine.folder) == before
    for line in (
        r"Net 'tiny': \d+ layers, 16 parameters, on the CPU \(\d+ threads\), 1 rank; built in \d",
        r"Test net #0, one batch: accuracy = \S+, loss = \S+ \(\d",
        r"Step, iteration 0: loss \S+, lr 0\.1; loss = \S+; \d+ images in \d",
        r"Memory: at most \d",
        r"Snapshot: .*, written, read back and found equal; the run writes 2 to tiny_iter_\*",
        r"Nothing was left behind\. The run can start\.",
    ):
        assert re.search(line, result.stdout), (line, result.stdout)


def test_it_goes_on_from_a_snapshot(engine):
    assert engine.run("train", "solver.prototxt").returncode == 0
    before = files(engine.folder)
    result = engine.run("train", "solver.prototxt", "--dry_run", "--snapshot=tiny_iter_10.solverstate")
    assert result.returncode == 0, result.stderr
    assert "Step, iteration 10: " in result.stdout
    assert "the run writes 1 to tiny_iter_*" in result.stdout
    newest = engine.run("train", "solver.prototxt", "--dry_run", "--snapshot=auto")
    assert newest.returncode == 0, newest.stderr
    assert "Step, iteration 20: " in newest.stdout
    assert files(engine.folder) == before


@pytest.mark.mpi
@pytest.mark.slow
def test_two_ranks_try_together_and_rank_0_reports(engine, mpi_ranks):
    before = files(engine.folder)
    result = mpi_ranks(2).run(engine.folder, "train", "solver.prototxt", "--dry_run")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("The run can start.") == 1
    assert "2 ranks" in result.stdout
    assert files(engine.folder) == before


def test_what_would_stop_the_run_stops_the_try_and_leaves_nothing(engine):
    engine.write("solver.prototxt", engine.solver.replace('"tiny"', '"absent/tiny"'))
    before = files(engine.folder)
    result = engine.run("train", "solver.prototxt", "--dry_run")
    assert (result.returncode, "cannot write snapshots to snapshot_prefix" in result.stderr) == (73, True)
    engine.write("solver.prototxt", engine.solver)
    engine.write("net.prototxt", engine.net.replace("num_output: 4", "num_output: 1"))
    before = files(engine.folder)
    result = engine.run("train", "solver.prototxt", "--dry_run")
    assert result.returncode != 0
    assert files(engine.folder) == before


def test_a_run_without_snapshots_needs_no_place_for_them(engine):
    text = re.sub(r"snapshot.*\n", "", engine.solver)
    engine.write("solver.prototxt", text + "snapshot_after_train: false\n")
    result = engine.run("train", "solver.prototxt", "--dry_run")
    assert result.returncode == 0, result.stderr
    assert "Snapshot: the run writes none" in result.stdout


def test_a_net_that_tests_run_no_batch_of_is_not_shown_as_tested(engine):
    engine.write("solver.prototxt", engine.solver.replace("test_iter: 4", "test_iter: 0 test_iter: 4"))
    result = engine.run("train", "solver.prototxt", "--dry_run")
    assert result.returncode == 0, result.stderr
    assert "Test net #1, one batch" in result.stdout
    assert "Test net #0, one batch" not in result.stdout
