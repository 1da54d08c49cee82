"""Modules of PyTorch that train over MPI: each check of merged_ranks.py is one test, from one mpirun for all of them.

At its end rank 1 raises. Ranks that are killed, stopped, or leave are tested over gloo in tests/pytorch, and over MPI
in `tests/soak/failing_modules.py`.
"""

import ast

import pytest

from tests.support.mpirun import parse_checks, run_mpi
from tests.support.paths import PROGRAMS, ROOT

PROGRAM = "tests.support.programs.merged_ranks"


def _check_names():
    tree = ast.parse((PROGRAMS / "merged_ranks.py").read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(each) == "check" for each in node.decorator_list)
    ]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    return run_mpi(["-m", PROGRAM, folder, "checks, then raises in backward"], n=2, timeout=180, cwd=ROOT)


@pytest.mark.parametrize("name", _check_names())
def test_on_every_rank(job, name):
    said = parse_checks(job.stdout).get(name, {})
    assert said == {0: "ok", 1: "ok"}, job.describe()


def test_a_rank_that_raises_in_backward_ends_the_job_by_its_error(job):
    assert (job.code, job.left_behind) == (1, ()), job.describe()
    assert job.stderr.count("ValueError: rank 1 fails in backward") == 1
    assert "rank 0" not in job.stderr, job.describe()
