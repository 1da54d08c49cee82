"""Every mistake gives one located message and its exit code, soon, and leaves no process behind."""

from __future__ import annotations

import sys

import pytest

# The net, what to put in its place, and what the message has to say.
_BAD_NETS = {
    "wrong type name": ('type: "InnerProduct"', 'type: "InerProduct"',
                        ["net.prototxt:16:3", "unknown layer type 'InerProduct'", "'ip'", "'InnerProduct'?"]),
    "unknown bottom": ('bottom: "data"', 'bottom: "dta"', ["net.prototxt:17:3", "'dta'", "'ip'"]),
    "missing brace": ('  include { phase: TEST }\n}', '  include { phase: TEST }', ["net.prototxt:"]),
    "wrong shape": ("shape { dim: 8 }", "shape { dim: 7 }", ["'loss'", "net.prototxt:"]),
    "missing LMDB": (
        'type: "DummyData"\n  top: "data"\n  top: "label"\n',
        'type: "Data"\n  top: "data"\n  top: "label"\n  data_param { source: "no_lmdb" batch_size: 8 }\n',
        ["no_lmdb", "'data'", "net.prototxt:"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", _BAD_NETS)
def test_a_bad_net_ends_with_code_65_and_its_place(engine, mistake):
    good, bad, told = _BAD_NETS[mistake]
    assert good in engine.net
    engine.write("net.prototxt", engine.net.replace(good, bad, 1))
    result = engine.run("train", "solver.prototxt")
    _check(result, 65, told)


def test_an_unwritable_snapshot_prefix_ends_with_code_73_before_training(engine):
    engine.write("solver.prototxt", engine.solver.replace('"tiny"', '"no/such/folder/tiny"'))
    result = engine.run("train", "solver.prototxt")
    _check(result, 73, ["no/such/folder/tiny", "solver.prototxt:"])
    assert "Iteration 0" not in result.stderr


def test_an_unwritable_json_log_ends_with_code_73(engine):
    result = engine.run("train", "solver.prototxt", "--json_log=no/such/run.json")
    _check(result, 73, ["no/such/run.json"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["train", "absent.prototxt"], ["absent.prototxt"]),
        (["train", "solver.prototxt", "--snapshot=absent.solverstate"], ["absent.solverstate"]),
        (["train", "solver.prototxt", "--plan_file=absent.json"], ["absent.json"]),
        (["test", "net.prototxt", "--weights=absent.caffemodel"], ["absent.caffemodel"]),
    ],
)
def test_a_missing_file_ends_with_code_65(engine, words, told):
    _check(engine.run(*words), 65, told)


def test_an_unknown_field_warns_and_is_an_error_under_strict(engine):
    engine.write("solver.prototxt", engine.solver + "max_itr: 7\n")
    result = engine.run("train", "solver.prototxt")
    assert result.returncode == 0, result.stderr
    assert any(line.startswith("W") and "max_itr" in line for line in result.stderr.splitlines())
    _check(engine.run("train", "solver.prototxt", "--strict"), 65, ["solver.prototxt:13:1", "max_itr"])


def test_a_field_that_does_not_belong_beside_the_solver_is_refused(engine):
    engine.write("solver.engine.prototxt", "comm_param { schedule: WFBP }\nbase_lr: 1\n")
    _check(engine.run("train", "solver.prototxt"), 65, ["solver.engine.prototxt:2:1", "base_lr"])


@pytest.mark.mpi
@pytest.mark.slow
def test_a_rank_that_raises_ends_the_job_with_its_message(engine):
    """The second rank's training fails in iteration 3, while the first one waits for its gradients."""
    script = engine.write(
        "raise.py",
        "import sys\n"
        "from mgcaffe.errors import DataError\n"
        "from mgcaffe.solvers.trainer import Trainer\n"
        "from mgcaffe.tools.main import main\n"
        "from mgcaffe.comm.transport.environment import detect\n"
        "compute = Trainer.compute_gradients\n"
        "def fail(self, seed, iteration, **options):\n"
        "    if iteration == 3 and detect().rank == 1:\n"
        "        raise DataError('record 5 is damaged')\n"
        "    return compute(self, seed, iteration, **options)\n"
        "Trainer.compute_gradients = fail\n"
        "sys.exit(main())\n",
    )
    result = engine.mpirun_command(2, [sys.executable, str(script), "train", "solver.prototxt"])
    _check(result, 65, ["rank 1", "record 5 is damaged"])


def test_a_mistake_of_ours_shows_its_traceback_and_asks_for_a_report(engine):
    script = engine.write(
        "bug.py",
        "import sys\n"
        "from mgcaffe.tools.commands import summary\n"
        "from mgcaffe.tools.main import main\n"
        "summary.parser = lambda: 1 / 0\n"
        "sys.exit(main(['summary', 'x']))\n",
    )
    result = engine.run_command([sys.executable, str(script)])
    assert result.returncode == 1
    assert "ZeroDivisionError" in result.stderr
    assert "Traceback" in result.stderr
    assert "This is a bug in mgcaffe: please report it" in result.stderr


@pytest.mark.mpi
@pytest.mark.slow
def test_two_ranks_with_different_nets_end_with_code_76(engine):
    engine.write("other.prototxt", engine.solver.replace('"net.', '"net2.'))
    engine.write("net2.prototxt", engine.net.replace("num_output: 4", "num_output: 5"))
    script = engine.write(
        "choose.py",
        "import sys\n"
        "from mgcaffe.comm.transport.environment import detect\n"
        "from mgcaffe.tools.main import main\n"
        "sys.exit(main(['train', ['solver.prototxt', 'other.prototxt'][detect().rank]]))\n",
    )
    result = engine.mpirun_command(2, [sys.executable, str(script)])
    _check(result, 76, ["num_output", "rank"])


@pytest.mark.mpi
@pytest.mark.slow
def test_a_bad_net_under_mpirun_is_reported_once(engine):
    engine.write("net.prototxt", engine.net.replace('"InnerProduct"', '"InerProduct"'))
    result = engine.mpirun(2, "train", "solver.prototxt")
    _check(result, 65, ["unknown layer type 'InerProduct'"])


@pytest.mark.mpi
def test_subcommands_for_one_process_refuse_several_ranks(engine):
    _check(engine.mpirun(2, "summary", "net.prototxt"), 2, ["engine summary runs as one process"])


def _check(result, code, told):
    """One message with all that has to be told, the exit code, and no traceback."""
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    for part in told:
        assert part in result.stderr, result.stderr
    assert result.stderr.count("error: ") == 1, result.stderr
