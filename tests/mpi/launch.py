"""Runs a Python script under mpirun and tells how it ended: exit code, output, or that it hung.

    result = run_mpi([script, "--flag"], n=2, timeout=30)
    assert result.returncode == 0 and not result.hung, result.describe()

`parse_checks` reads what `check_runner.py` prints, one line a check and rank.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MPIRUN = Path(sys.executable).parent / "mpirun"

_ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMP_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True)
class MpiResult:
    """How an mpirun ended.

    Attributes:
        returncode: mpirun's exit code; of a job that hung, minus the signal that ended it.
        stdout: the standard output of all ranks.
        stderr: the standard error of all ranks, and mpirun's notices.
        hung: whether it had to be killed.
        seconds: how long it ran.
        left_behind: the process ids that were still alive in the job's session after mpirun had ended.
    """

    returncode: int
    stdout: str
    stderr: str
    hung: bool
    seconds: float
    left_behind: tuple[int, ...]

    def describe(self) -> str:
        """Return everything, for an assertion's message."""
        how = "hung" if self.hung else f"exit code {self.returncode}"
        return f"{how} after {self.seconds:.1f} s\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


def run_mpi(
    arguments: Sequence[str | Path],
    n: int = 2,
    timeout: float = 60.0,
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    options: Sequence[str] = (),
) -> MpiResult:
    """Run `python ARGUMENTS` on n ranks and wait for the end, at most `timeout` seconds.

    Args:
        arguments: a script and its arguments, or "-m", "module" and its arguments.
        n: the number of ranks.
        timeout: seconds after which all processes of the job are killed.
        environment: variables beside this process's own.
        cwd: the directory to run in.
        options: more of mpirun's options.
    """
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="mpirun-", dir=memory if os.access(memory, os.W_OK) else None, ignore_cleanup_errors=True
    ) as own:
        # Left to itself, an mpirun that is killed leaves its files to the next one of its process id.
        command = [
            str(MPIRUN),
            *("--oversubscribe", "--bind-to", "none", "-n", str(n), "--prtemca", "prte_tmpdir_base", own),
            *("--mca", "btl_sm_backing_directory", own),
            *options,
            sys.executable,
            *(str(argument) for argument in arguments),
        ]
        return _run(command, timeout, {**os.environ, **_ENVIRONMENT, **(environment or {})}, cwd)


def _run(command: Sequence[str], timeout: float, environment: Mapping[str, str], cwd: Path | None) -> MpiResult:
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=environment,
        start_new_session=True,
    )
    hung = False
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        hung = True
        for pid in _session_members(process.pid):
            _kill(pid)
        stdout, stderr = process.communicate()
    seconds = time.perf_counter() - began
    left_behind = _await_end_of_session(process.pid)
    for pid in left_behind:
        _kill(pid)
    return MpiResult(process.returncode, stdout, stderr, hung, seconds, left_behind)


def parse_checks(output: str) -> dict[str, dict[int, str]]:
    """Return, for every check, what each rank said of it: "ok" or what went wrong."""
    checks: dict[str, dict[int, str]] = {}
    for line in output.splitlines():
        if line.startswith("CHECK\t"):
            _, name, rank, said = line.split("\t", 3)
            checks.setdefault(name, {})[int(rank)] = said
    return checks


def _session_members(session: int) -> tuple[int, ...]:
    """Return the living processes of a session; ranks have process groups of their own."""
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, _, its_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(its_session) == session and state != "Z":
                members.append(int(entry.name))
    return tuple(members)


def _await_end_of_session(session: int, patience_s: float = 3.0) -> tuple[int, ...]:
    deadline = time.perf_counter() + patience_s
    while (members := _session_members(session)) and time.perf_counter() < deadline:
        time.sleep(0.05)
    return members


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
