"""comm over real MPI: each check of checks.py is one test, from one mpirun for every number of ranks."""

from __future__ import annotations

import ast

import pytest

from tests.support.mpirun import parse_checks, run_mpi
from tests.support.paths import PROGRAMS

CHECKS = PROGRAMS / "checks.py"
_RESULTS: dict = {}


def _check_names() -> list[str]:
    tree = ast.parse(CHECKS.read_text())
    return [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(each) == "check" for each in node.decorator_list)
    ]


@pytest.fixture
def job(size):
    if size not in _RESULTS:
        _RESULTS[size] = run_mpi([CHECKS], n=size, timeout=60)
    return _RESULTS[size]


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("name", _check_names())
def test_on_every_rank(job, size, name):
    said = parse_checks(job.stdout).get(name, {})
    assert said == dict.fromkeys(range(size), "ok"), job.describe()


@pytest.mark.parametrize("size", [2, 4])
def test_the_job_ends_with_zero_and_leaves_nothing_behind(job, size):
    assert (job.returncode, job.hung, job.left_behind) == (0, False, ()), job.describe()
