"""Ranks with unlike command lines end within seconds, with the difference named, instead of waiting for each other."""

from __future__ import annotations

import socket
import sys

import pytest

from tests.support.mpirun import parse_checks, run_mpi
from tests.support.paths import PROGRAMS
from tests.support.programs.command_lines import every_flag

SCRIPT = PROGRAMS / "command_lines.py"
ENGINE = (sys.executable, "-m", "mgcaffe.tools.main")
TRAIN = ("train", "solver.prototxt")

NET = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 }
  data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip1" bottom: "label" top: "loss" }
"""
SOLVER = (
    'net: "net.prototxt" base_lr: 0.001 lr_policy: "fixed" max_iter: 20 snapshot: 10 snapshot_prefix: "net" '
    "random_seed: 7 solver_mode: CPU\n"
)

FREE = {"solver", "gpu", "threads", "log_dir", "sigint_effect", "sighup_effect", "stall_timeout"}
OF_RANK_0 = {"json_log", "tensorboard", "progress", "no_progress", "stop_file", "requeue"}
OF_THE_LAUNCHER = {"np", "H", "max_restarts", "mpirun_args", "rescue"}
FIELDS = {"best": "snapshot_best", "no_snapshot_background": "snapshot_background"}


@pytest.fixture(scope="module")
def cases():
    """What each rank said in each case of command_lines.py: {case: {rank: "exit code and message"}}."""
    result = run_mpi([SCRIPT], n=2, timeout=60)
    assert result.returncode == 0 and not result.hung, result.describe()
    return parse_checks(result.stdout)


@pytest.mark.parametrize("flag", every_flag())
def test_a_flag_of_one_rank_is_refused_unless_it_concerns_that_rank_alone(cases, flag):
    first, second = cases[f"--{flag}"][0], cases[f"--{flag}"][1]
    if flag in FREE:
        assert first == second == "0"
    elif flag in OF_RANK_0:
        name = flag.removeprefix("no_")
        assert first == f"0 warning: --{name} of rank 1 has no effect: rank 0 alone uses it" and second == "0"
    elif flag in OF_THE_LAUNCHER:
        assert first.startswith("69 rank 1 ended") and second.startswith("2 --")
    else:
        name = FIELDS.get(flag, flag)
        assert first == second
        assert first.startswith(
            f"76 the 2 ranks were not given the same --{name}: |   --{name} |     rank 0: (not given)"
        )
        assert "|     rank 1: " in first and "(not given)" not in first.partition("rank 1: ")[2]


@pytest.mark.parametrize("case", ["equal", "default spelled out", "help on all"])
def test_ranks_that_agree_go_on(cases, case):
    assert cases[case] == {0: "0", 1: "0"}


@pytest.mark.parametrize(
    ("case", "shown"),
    [
        ("both", ["--snapshot_keep and --timeline", "rank 0: a", "rank 1: b", "rank 1: 2"]),
        ("timeline on rank 0", ["--timeline", "rank 0: a", "rank 1: (not given)"]),
        (
            "help",
            ["command line", "rank 0: engine train solver.prototxt |", "rank 1: engine train solver.prototxt --h"],
        ),
        ("help on rank 0", ["rank 0: engine --help", "rank 1: engine train solver.prototxt"]),
        ("version", ["rank 1: engine --version"]),
        ("test", ["rank 0: engine train solver.prototxt", "rank 1: engine test net.prototxt --weights=a"]),
        ("iterations of a test", ["--iterations", "rank 0: (not given)", "rank 1: 2"]),
    ],
)
def test_a_difference_is_named_on_every_rank(cases, case, shown):
    first, second = cases[case][0], cases[case][1]
    assert first == second and first.startswith("76 the 2 ranks were not given the same ")
    assert all(text in first for text in shown), first


@pytest.mark.parametrize(
    ("case", "first", "second"),
    [
        ("unknown flag", "69 rank 1 ended", "2 unknown flag '--foo'"),
        ("unknown flag on rank 0", "2 unknown flag '--foo'", "69 rank 0 ended"),
        ("unknown flags", "2 unknown flag '--foo'", "2 unknown flag '--bar'"),
        ("no solver", "69 rank 1 ended", "2 the solver is missing"),
        ("unknown command", "69 rank 1 ended", "2 unknown command 'trainn'"),
        ("summary", "69 rank 1 ended", "2 engine summary runs as one process"),
        ("nothing", "69 rank 1 ended", "2"),
        ("help and unknown flag", "0", "2 unknown flag '--foo'"),
    ],
)
def test_wrong_usage_on_one_rank_ends_the_others(cases, case, first, second):
    assert cases[case][0].startswith(first) and cases[case][1].startswith(second), cases[case]


@pytest.fixture
def start(tmp_path):
    """Runs one mpirun with a command line for each rank; gives its exit code and standard error."""
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    (tmp_path / "more.prototxt").write_text(SOLVER.replace("snapshot: 10", "snapshot: 0"))

    def start(*lines: tuple[str, ...], options: tuple[str, ...] = ()) -> tuple[int, str]:
        first, *others = lines
        rest = [word for line in others for word in (":", "-n", "1", *ENGINE, *line)]
        result = run_mpi(["-m", "mgcaffe.tools.main", *first, *rest], n=1, timeout=60, cwd=tmp_path, options=options)
        assert not result.hung and result.seconds < 30, result.describe()
        return result.returncode, result.stderr

    return start


@pytest.mark.parametrize("word", ["--timeline=f", "--dry_run", "--help"])
def test_a_job_whose_ranks_disagree_ends_with_76_and_one_message(start, word):
    code, said = start(TRAIN, (*TRAIN, word))
    assert code == 76 and said.count("error: ") == 1, said
    assert "error: the 2 ranks were not given the same " in said and "rank 1: " in said


def test_only_one_of_three_ranks_is_named(start):
    code, said = start(TRAIN, (*TRAIN, "--snapshot=net_iter_10.solverstate"), TRAIN)
    assert code == 76 and "ranks 0,2: (not given)" in said and "rank 1: net_iter_10.solverstate" in said, said


@pytest.mark.parametrize(("rank", "options"), [(0, ()), (1, ("--with-ft", "ulfm"))])
def test_wrong_usage_of_one_rank_ends_the_job_with_2(start, rank, options):
    lines = [TRAIN, TRAIN]
    lines[rank] = (*TRAIN, "--foo")
    code, said = start(*lines, options=options)
    assert code == 2 and said.count("error: ") == 1, said
    assert f"error: rank {rank} ({socket.gethostname()}): unknown flag '--foo'" in said


def test_dry_runs_of_unlike_solvers_end_with_76(start):
    code, said = start((*TRAIN, "--dry_run"), ("train", "more.prototxt", "--dry_run"))
    assert code == 76 and "not given the same solver" in said and "rank 1: snapshot: 0" in said, said


def test_what_concerns_one_rank_alone_may_differ(start, tmp_path):
    code, said = start((*TRAIN, "--json_log=a.json", "--threads=1"), (*TRAIN, "--threads=2", "--log_dir=logs"))
    assert code == 0, said
    assert (tmp_path / "a.json").exists() and (tmp_path / "logs" / "engine.rank1.INFO").exists()
