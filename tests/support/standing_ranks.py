"""Ranks of one mpirun that run one `engine` command after the other, for tests that look at what a run leaves.

    result = mpi_ranks(2).run(folder, "train", "solver.prototxt")
    assert result.returncode == 0, result.stderr

Most of a short job's time goes into loading torch on each rank, which these do once for all tests of a pytest process.
What concerns the end of a job, an error of the ranks among it, needs a job of its own (`mpirun.run_mpi`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.jobs import RunningJob
from tests.support.mpirun import start_mpi
from tests.support.paths import ROOT

PROGRAM = "tests.support.programs.standing_ranks"


class StandingRanks:
    """So many ranks, started by the first command and again by the one after a command that has ended them.

    Attributes:
        job: the mpirun, once there was a command; commands go on while it is sent signals or their files are watched.
    """

    job: RunningJob

    def __init__(self, size: int) -> None:
        self._size = size
        self._commands = 0
        self._words: tuple[str, ...] = ()
        self._folder: Path | None = None

    def run(
        self, cwd: Path, *words: str, environment: Mapping[str, str] | None = None, timeout: float = 120.0
    ) -> subprocess.CompletedProcess[str]:
        """Run `engine WORDS` on all ranks: `start` and `end`."""
        self.start(cwd, *words, environment=environment)
        return self.end(timeout)

    def start(self, cwd: Path, *words: str, environment: Mapping[str, str] | None = None) -> None:
        """Have all ranks begin with `engine WORDS`.

        Args:
            cwd: the directory to run in.
            words: the command line.
            environment: variables beside those of this process; with RECORD as in `programs/faulty_engine.py`.
        """
        if self._folder is not None and not self._has_ended():  # a test has failed meanwhile
            self._remove()
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="ranks-"))
            self._commands = 0
            # Pipes: who waits for a command takes no time meanwhile, and ends if this process does.
            pipes = [self._folder / f"commands.{rank}" for rank in range(self._size)]
            for path in pipes:
                os.mkfifo(path)
            self._pipes = [path.open("r+b", buffering=0) for path in pipes]
            self.job = start_mpi(["-m", PROGRAM, self._folder], self._size, cwd=ROOT)
        self._commands += 1
        self._words = words
        self._place.mkdir()
        command = {"place": str(self._place), "cwd": str(cwd), "words": words, "environment": dict(environment or {})}
        for pipe in self._pipes:
            pipe.write(json.dumps(command).encode() + b"\n")

    def await_(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Wait until something holds, at most `timeout` seconds; False if the command ended first or it took longer."""
        self.job.await_(lambda: condition() or self._has_ended(), timeout)
        return condition()

    def end(self, timeout: float) -> subprocess.CompletedProcess[str]:
        """Wait for the command's end, and kill the ranks if it takes longer than `timeout` seconds.

        Returns:
            The exit code, which all ranks have to agree on, and what they have printed.
        """
        if not self.job.await_(self._has_ended, timeout):
            said = f"engine {' '.join(self._words)}: {self.job.end(0).describe()}\n{self._said('stderr')}"
            self._remove()
            raise AssertionError(said)
        (code,) = {int(path.read_text()) for path in self._codes()}
        return subprocess.CompletedProcess(self._words, code, self._said("stdout"), self._said("stderr"))

    def close(self) -> None:
        """Have the ranks end; they have to do so with 0, and leave no process."""
        if self._folder is None:
            return
        self._close_pipes()
        result = self.job.end(60)
        self._remove()
        assert result.code == 0 and not result.left_behind, result.describe()

    def _remove(self) -> None:
        assert self._folder is not None
        self._close_pipes()
        with self.job:  # kills what still runs
            shutil.rmtree(self._folder)
        self._folder = None

    def _close_pipes(self) -> None:
        for pipe in self._pipes:
            pipe.close()

    @property
    def _place(self) -> Path:
        assert self._folder is not None
        return self._folder / str(self._commands)

    def _codes(self) -> list[Path]:
        return [self._place / f"code.{rank}" for rank in range(self._size)]

    def _has_ended(self) -> bool:
        return all(path.exists() for path in self._codes())

    def _said(self, name: str) -> str:
        return (self._place / name).read_text(errors="replace") if (self._place / name).exists() else ""
