"""However a rank ends, the job ends soon, with one message, the right exit code and no process left."""

from __future__ import annotations

import socket

import pytest

from tests.support.mpirun import run_mpi
from tests.support.paths import PROGRAMS

FAIL = PROGRAMS / "fail.py"


@pytest.mark.parametrize(
    ("way", "code", "message"),
    [
        ("before_connect_all", 65, "error: unknown bottom blob 'fc8'"),
        ("before_connect_one", 65, "error: rank 1: no such file 'net.prototxt'"),
        ("all_alike", 65, "error: unknown bottom blob 'fc8'"),
        ("handshake", 76, "error: the 2 ranks were not given the same net:"),
        ("late", 65, "error: rank 1 (HOST): after the others had finished"),
        ("raises_engine_error", 65, "error: rank 1 (HOST): cannot reshape blob 'data'"),
        ("raises_internal", 1, "error: rank 1 (HOST): internal error: ZeroDivisionError: a bug"),
        ("system_exit", 3, "error: rank 1 (HOST): ended with exit code 3"),
        ("interrupt", 1, "error: rank 1 (HOST): interrupted"),
        ("in_backward", 65, "error: rank 1 (HOST): backward of layer 'conv1'"),
    ],
)
def test_a_failure_ends_the_job_with_one_message_and_its_exit_code(way, code, message):
    result = run_mpi([FAIL, way], n=2, timeout=20)
    assert not result.hung and result.returncode == code, result.describe()
    assert result.stderr.count("error: ") == (2 if way == "raises_internal" else 1), result.describe()
    assert message.replace("HOST", socket.gethostname()) in result.stderr, result.describe()
    assert result.seconds < 10 and result.left_behind == ()


def test_different_failures_of_all_ranks_come_in_one_message():
    result = run_mpi([FAIL, "all_different"], n=3, timeout=20)
    assert result.returncode == 65 and result.stderr.count("error: ") == 1, result.describe()
    for rank in range(3):
        assert f"cannot read mean file of rank {rank}" in result.stderr


def test_a_common_exit_code_needs_no_message():
    result = run_mpi([FAIL, "all_return_75"], n=2, timeout=20)
    assert result.returncode == 75 and "error" not in result.stderr, result.describe()


def test_a_killed_rank_ends_the_job():
    result = run_mpi([FAIL, "killed"], n=2, timeout=20)
    assert not result.hung and result.returncode != 0 and result.left_behind == (), result.describe()


def test_success_ends_with_zero():
    result = run_mpi([FAIL, "fine"], n=2, timeout=20)
    assert result.returncode == 0 and result.stdout.count("sum 2.0") == 2, result.describe()


def test_the_runner_tells_a_hang_from_an_exit_code():
    result = run_mpi([FAIL, "computing"], n=2, timeout=2.0)
    assert result.hung and result.left_behind == ()
