"""Starts a job under mpirun.

    result = run_mpi([script, "--flag"], n=2, timeout=30)
    assert result.returncode == 0 and not result.hung, result.describe()

`parse_checks` reads what `programs/checks.py` prints, one line a check and rank.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from tests.support.jobs import JobResult, RunningJob

MPIRUN = shutil.which("mpirun", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
"""The one beside this Python, else the one on the PATH; None: there is none."""

# mpirun refuses to run as root, as it does in containers, without these two.
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def start_mpi(
    arguments: Sequence[str | Path],
    n: int = 2,
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    options: Sequence[str] = (),
    program: Sequence[str] = (sys.executable,),
    places_files: bool = True,
) -> RunningJob:
    """Start `python ARGUMENTS` on n ranks.

    Args:
        arguments: a script and its arguments, or "-m", "module" and its arguments.
        n: the number of ranks.
        environment: variables beside this process's own.
        cwd: the directory to run in.
        options: more of mpirun's options.
        program: what the arguments are for, this Python unless said otherwise.
        places_files: as for `RunningJob`.
    """
    assert MPIRUN is not None, "a test that starts mpirun has the marker mpi"
    flags = ("--oversubscribe", "--bind-to", "none", "-n", str(n))
    return RunningJob(
        [MPIRUN, *flags, *options, *program, *arguments],
        environment={**AS_ROOT, **(environment or {})},
        cwd=cwd,
        places_files=places_files,
    )


def run_mpi(
    arguments: Sequence[str | Path],
    n: int = 2,
    timeout: float = 60.0,
    *,
    environment: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    options: Sequence[str] = (),
) -> JobResult:
    """Run `python ARGUMENTS` on n ranks and wait for the end, at most `timeout` seconds; the rest as in `start_mpi`."""
    with start_mpi(arguments, n, environment=environment, cwd=cwd, options=options) as job:
        return job.end(timeout)


def parse_checks(output: str) -> dict[str, dict[int, str]]:
    """Return, for every check, what each rank said of it: "ok" or what went wrong."""
    checks: dict[str, dict[int, str]] = {}
    for line in output.splitlines():
        if line.startswith("CHECK\t"):
            _, name, rank, said = line.split("\t", 3)
            checks.setdefault(name, {})[int(rank)] = said
    return checks


def rank_pids(job: RunningJob) -> dict[int, int]:
    """Return the processes of a job's ranks, by rank."""
    pids: dict[int, int] = {}
    for pid in job.members():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.name().startswith("python") and (rank := process.environ().get("OMPI_COMM_WORLD_RANK")):
                pids[int(rank)] = pid
    return pids
