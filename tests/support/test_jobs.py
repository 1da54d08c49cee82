"""The starter of jobs: what it says of an end, and that no process and no file stays behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.support.jobs import RunningJob

# A child in a session of its own, which its parent does not wait for.
LEAVES_A_CHILD = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", code, *words]


@pytest.mark.parametrize(
    ("code", "timeout", "returncode", "says"),
    [
        ("raise SystemExit(3)", 30, 3, "exit code 3 after"),
        ("import os; os.kill(os.getpid(), 11)", 30, -signal.SIGSEGV, "killed by SIGSEGV after"),
        ("import time; time.sleep(60)", 0.1, -signal.SIGKILL, "hung after"),
    ],
)
def test_an_exit_code_a_signal_and_a_hang_are_distinguished(tmp_path, code, timeout, returncode, says):
    begin = "import pathlib; print('begun', flush=True); pathlib.Path('begun').touch()"
    with RunningJob(python(f"{begin}; {code}"), cwd=tmp_path) as job:
        assert job.await_((tmp_path / "begun").exists, 30)
        result = job.end(timeout)
    assert (result.returncode, result.stdout, result.left_behind) == (returncode, "begun\n", ())
    assert result.hung == says.startswith("hung") and result.code == (None if result.hung else returncode)
    assert result.describe().startswith(says)


def test_a_process_that_outlives_its_job_is_named_and_killed():
    with RunningJob(python(LEAVES_A_CHILD, "sleep", "60")) as job:
        result = job.end(10, patience_s=0.2)
    (left,) = result.left_behind
    assert result.returncode == 0 and f"left behind: ({left},)" in result.describe()
    assert job.members() == ()


def test_whatever_ends_the_context_ends_the_job(tmp_path):
    with pytest.raises(ZeroDivisionError), RunningJob(python(LEAVES_A_CHILD, "sleep", "60"), cwd=tmp_path) as job:
        assert job.await_(lambda: len(job.members()) == 1 and job.process.poll() is not None, 10)
        raise ZeroDivisionError
    assert job.members() == ()


def test_the_files_of_open_mpi_lie_in_a_folder_that_goes_with_the_job():
    names = ("PRTE_MCA_prte_tmpdir_base", "OMPI_MCA_btl_sm_backing_directory")
    code = "import os, sys; print(*(os.environ.get(name) for name in sys.argv[1:]))"
    with RunningJob(python(code, *names)) as job:
        session, memory = job.end(10).stdout.split()
    assert session == memory and not Path(session).exists()
    if os.access("/dev/shm", os.W_OK):
        assert Path(session).parent == Path("/dev/shm")
    with RunningJob(python(code, *names), places_files=False) as job:
        assert job.end(10).stdout.split() == ["None", "None"]


def test_waiting_ends_with_the_job():
    with RunningJob(python("pass")) as job:
        began = time.monotonic()
        assert not job.await_(lambda: False, 30)
        assert time.monotonic() - began < 20
