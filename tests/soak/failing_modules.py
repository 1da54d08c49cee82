"""What becomes of the other rank when one that trains a module over MPI fails: ended within ten seconds, by a message.

Two ranks under mpirun for each way to fail. `make test` has one of them in tests/mpi/test_merged_gradient_parallel.py,
and the same ways over gloo in tests/pytorch/test_merged_gradient_parallel.py; here some wait for as long as the default
`peer_timeout` says.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from tests.soak import Row
from tests.support.failing_module import failing_rank
from tests.support.jobs import RunningJob
from tests.support.mpirun import start_mpi
from tests.support.paths import ROOT

NAME = "failing-modules"
MAX_S = 10.0
_START_S, _LIMIT_S = 180.0, 30.0

LACKING = "CommError: 2 parameters got no gradient in a backward pass on rank 1: 'rest.weight', 'rest.bias'"
CANNOT = "error: rank {waiting} cannot go on: rank {failing} of 2 on "
WAYS = {
    "raises in forward": "ValueError: rank 1 fails in forward",
    "raises in backward": "ValueError: rank 1 fails in backward",
    "one_lacks": LACKING,
    "killed in forward": "",
    "killed in backward": "",
    "stopped in forward": f"{CANNOT}|is stopped by a signal (SIGSTOP or the like)",
    "rank 0 stopped in backward": f"{CANNOT}|is stopped by a signal (SIGSTOP or the like)",
    "caught in forward": f"{CANNOT}|raised ValueError: rank 1 fails in forward in its forward pass, and has computed",
    "caught in backward": f"{CANNOT}|raised an exception in its backward pass, and has computed nothing",
    "leaves": f"{CANNOT}|has ended",
    "exits": f"{CANNOT}|has ended",
}
"""What has to be said, in parts; `killed` is said by mpirun."""

SAMPLE = ("raises in forward", "killed in backward")


@dataclass(frozen=True)
class Ending:
    """How a job ended.

    Attributes:
        seconds: from the failure until the other rank had ended; None: it had not.
        code: of mpirun; None: it had to be killed.
        said: all that was printed.
    """

    seconds: float | None
    code: int | None
    said: str


def run(full: bool, named: Sequence[str] = ()) -> list[Row]:
    """Return a row of all ways to fail, or of those named."""
    ways = named or (tuple(WAYS) if full else SAMPLE)
    row = Row("a rank that trains a module over MPI fails: the other one ends in time", len(ways))
    began = time.monotonic()
    times = []
    for how in ways:
        ending = _end_of(how)
        problem = _problem(how, ending)
        if problem is not None:
            row.failures.append(f"{how}: {problem}")
        times.append(f"{how} {ending.seconds:.1f} s" if ending.seconds is not None else f"{how}: never")
    row.note = ", ".join(times)
    row.seconds = time.monotonic() - began
    return [row]


def _problem(how: str, ending: Ending) -> str | None:
    failing = failing_rank(how, 2)
    parts = WAYS[how].format(waiting=1 - failing, failing=failing).split("|")
    if ending.seconds is None or ending.seconds > MAX_S:
        return f"took {ending.seconds} s: {ending.said}"
    if ending.code in (0, None) or not all(part in ending.said for part in parts):
        return f"code {ending.code}: {ending.said}"
    return None


def _end_of(how: str) -> Ending:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words = ["-m", "tests.support.programs.merged_ranks", folder, how]
        with start_mpi(words, cwd=ROOT) as job:
            failing = folder / f"{failing_rank(how, 2)}.json"
            job.await_(lambda: "at" in _said(failing), _START_S)
            other = _said(folder / f"{1 - failing_rank(how, 2)}.json").get("pid", 0)
            ended_at = _await_end(other)
            _let_end(job, _said(failing).get("pid", 0))
            result = job.end(_LIMIT_S)
            at = _said(failing).get("at")
            seconds = ended_at - at if ended_at is not None and at is not None else None
            return Ending(seconds, result.code, result.describe())


def _said(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _await_end(pid: int) -> float | None:
    """Return when a process ended, None if it does not."""
    deadline = time.monotonic() + _LIMIT_S
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return time.monotonic()
        except psutil.NoSuchProcess:
            return time.monotonic()
        time.sleep(0.02)
    return None


def _let_end(job: RunningJob, pid: int) -> None:
    """Kill the rank that failed where it never ends by itself, unless mpirun does."""
    if not job.await_(lambda: not psutil.pid_exists(pid), 5.0):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
