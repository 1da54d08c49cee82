"""Jobs of several processes: how they ended, what they printed, and that nothing of them stays behind.

    with RunningJob(command, cwd=folder) as job:
        assert job.await_(lambda: (folder / "net_iter_20.solverstate").exists(), 60)
        job.process.send_signal(signal.SIGINT)
        result = job.end(30)
    assert result.returncode == 75 and not result.left_behind, result.describe()

A job's processes are known by a variable in their environment, which they inherit whatever sessions and groups they
make, and all of them are killed at the end. Open MPI's own files (mpirun's session, the ranks' shared memory) go to a
folder of the job: left to itself, an mpirun that is killed leaves its files to the next one of its process id.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MARK = "TEST_JOB"
_MEMORY = Path("/dev/shm")
_KILL_S = 10.0
"""How long a killed process may take to end."""
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True)
class JobResult:
    """How a job ended.

    Attributes:
        returncode: the exit code; minus the signal that ended it, also if that was ours because it hung.
        stdout: the standard output of all processes.
        stderr: their standard error, and mpirun's notices.
        hung: whether it had to be killed.
        seconds: how long it ran.
        left_behind: the process ids that were still alive some time after the job had ended; they are killed by now.
    """

    returncode: int
    stdout: str
    stderr: str
    hung: bool
    seconds: float
    left_behind: tuple[int, ...]

    @property
    def code(self) -> int | None:
        """The exit code; None if the job hung."""
        return None if self.hung else self.returncode

    @property
    def output(self) -> str:
        """All that was printed, standard error last."""
        return self.stdout + self.stderr

    def describe(self) -> str:
        """Return everything, for an assertion's message."""
        how = "hung" if self.hung else f"exit code {self.returncode}"
        if self.returncode < 0 and not self.hung:
            how = f"killed by {signal.Signals(-self.returncode).name}"
        left = f"\nleft behind: {self.left_behind}" if self.left_behind else ""
        return f"{how} after {self.seconds:.1f} s{left}\n--- stdout\n{self.stdout}\n--- stderr\n{self.stderr}"


class RunningJob:
    """A command and all processes that come of it; as a context, it leaves none of them.

    Args:
        command: what to run.
        environment: variables beside this process's own.
        cwd: the directory to run in.
        places_files: whether Open MPI's files go to the job's own folder; False where it is tested where they lie.
        popen: starts the command, with the options of `subprocess.Popen`.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        places_files: bool = True,
        popen: Callable[..., subprocess.Popen[Any]] = subprocess.Popen,
    ) -> None:
        # In memory, where ranks of one host exchange data; and the paths of mpirun's sockets have to be short.
        self._folder = Path(tempfile.mkdtemp(prefix="job-", dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None))
        self._mark = f"{_MARK}={uuid.uuid4().hex}".encode()
        variables = {**os.environ, **_ENVIRONMENT, _MARK: self._mark.decode().partition("=")[2]}
        if places_files:
            variables["PRTE_MCA_prte_tmpdir_base"] = str(self._folder)
            variables["OMPI_MCA_btl_sm_backing_directory"] = str(self._folder)
        self._stdout, self._stderr = self._folder / "stdout", self._folder / "stderr"
        self._began = time.perf_counter()
        try:
            # Files: a pipe's end would come only with the last process that holds it, wanted or left behind.
            with self._stdout.open("w") as stdout, self._stderr.open("w") as stderr:
                self.process = popen(
                    [str(word) for word in command],
                    cwd=cwd,
                    env={**variables, **(environment or {})},
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
        except BaseException:
            self._remove_files()
            raise

    def __enter__(self) -> RunningJob:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill_all()
        self.process.wait()
        self._remove_files()

    def await_(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until something holds, at most `timeout` seconds; False if the job ended first or it took longer."""
        deadline = time.monotonic() + timeout
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                return condition()
            time.sleep(0.005)
        return True

    def end(self, timeout: float, *, patience_s: float = 3.0) -> JobResult:
        """Wait for the end and remove the job's folder.

        Args:
            timeout: seconds after which all processes of the job are killed.
            patience_s: for so many seconds after the end other processes of the job may still be there.
        """
        hung = False
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            hung = True
            self._kill_all()
            self.process.wait()
        seconds = time.perf_counter() - self._began
        left_behind = self._await_end_of_all(patience_s)
        self._kill_all()
        stdout, stderr = (path.read_text(errors="replace") for path in (self._stdout, self._stderr))
        self._remove_files()
        return JobResult(self.process.returncode, stdout, stderr, hung, seconds, left_behind)

    def members(self) -> tuple[int, ...]:
        """Return the ids of the living processes of the job."""
        members = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    variables = (entry / "environ").read_bytes()
                except OSError:  # it has ended, or is another user's
                    continue
                if self._mark in variables.split(b"\0"):
                    members.append(int(entry.name))
        return tuple(members)

    def _await_end_of_all(self, patience_s: float) -> tuple[int, ...]:
        deadline = time.perf_counter() + patience_s
        while (members := self.members()) and time.perf_counter() < deadline:
            time.sleep(0.05)
        return members

    def _kill_all(self) -> None:
        deadline = time.monotonic() + _KILL_S
        while (members := self.members()) and time.monotonic() < deadline:
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def _remove_files(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
