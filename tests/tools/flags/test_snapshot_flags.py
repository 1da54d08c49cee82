"""The flags about snapshots: each reaches its field, and `--snapshot=auto` goes on or starts anew."""

import json

import pytest

from mgcaffe.errors import UsageError
from mgcaffe.prototxt import SolverParameter
from mgcaffe.tools.commands import train
from mgcaffe.tools.flags.snapshot_flags import apply_snapshot_flags


def solver_of(*words, **fields):
    solver = SolverParameter(**fields)
    apply_snapshot_flags(solver, train.parser().parse(list(words)))
    return solver


def test_each_flag_reaches_its_field():
    solver = solver_of("--snapshot_keep=3", "--best=accuracy", "--snapshot_errors=stop", "--no_snapshot_background")
    assert (solver.snapshot_keep, solver.snapshot_best) == (3, "accuracy")
    assert solver.snapshot_errors == SolverParameter.STOP and not solver.snapshot_background
    assert solver_of("--snapshot-best", "loss:lower").snapshot_best == "loss:lower"
    assert solver_of("--snapshot_background", snapshot_background=False).snapshot_background


def test_what_no_flag_says_stays_as_the_solver_has_it():
    fields = {"snapshot_keep": 2, "snapshot_best": "loss", "snapshot_errors": 1, "snapshot_background": False}
    assert solver_of(**fields) == SolverParameter(**fields)
    assert solver_of() == SolverParameter()


@pytest.mark.parametrize("words", [["--snapshot_keep=-1"], ["--snapshot_errors=maybe"]])
def test_values_that_make_no_sense_are_refused(words):
    with pytest.raises(UsageError):
        train.parser().parse(words)


def test_auto_starts_anew_and_then_goes_on_from_the_newest_whole_snapshot(engine):
    engine.write("solver.engine.prototxt", "snapshot_keep: 3\n")
    words = ("train", "solver.prototxt", "--snapshot=auto", "--best=accuracy", "--json_log=run.json")
    first = engine.run(*words, "--max_iter=10")
    assert first.returncode == 0, first.stderr
    assert "No snapshot begins with tiny: starting anew" in first.stderr
    weights = engine.folder / "tiny_iter_10.caffemodel"
    second = engine.run(*words, "--weights=absent.caffemodel")
    assert second.returncode == 0, second.stderr
    assert "Resuming from tiny_iter_10.solverstate" in second.stderr

    newest = engine.folder / "tiny_iter_20.caffemodel"
    newest.write_bytes(newest.read_bytes()[:-1])
    third = engine.run(*words)
    assert third.returncode == 0, third.stderr
    assert "tiny_iter_20.caffemodel is cut short" in third.stderr
    assert "Resuming from tiny_iter_10.solverstate" in third.stderr and weights.is_file()
    lines = [json.loads(line) for line in (engine.folder / "run.json").read_text().splitlines()]
    assert [line["event"] for line in lines if line["event"] in ("anew", "restore")] == ["anew", "restore", "restore"]
    assert any(line["event"] == "best" and line["output"] == "accuracy" for line in lines)


def test_a_snapshot_that_was_changed_is_an_error_that_names_it(engine):
    assert engine.run("train", "solver.prototxt", "--max_iter=10").returncode == 0
    state = engine.folder / "tiny_iter_10.solverstate"
    content = bytearray(state.read_bytes())
    content[len(content) // 2] ^= 1
    state.write_bytes(content)
    result = engine.run("train", "solver.prototxt", "--snapshot=tiny_iter_10.solverstate")
    assert result.returncode == 65
    assert "error: tiny_iter_10.solverstate is damaged" in result.stderr
    assert "Traceback" not in result.stderr
