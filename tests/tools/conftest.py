"""A small net and its solver, and the `engine` command run as a user runs it."""

from __future__ import annotations

import io
import logging
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import torch

from mgcaffe.tools import main

NET = """\
name: "tiny"
layer {
  name: "data"
  type: "DummyData"
  top: "data"
  top: "label"
  dummy_data_param {
    shape { dim: 8 dim: 3 }
    shape { dim: 8 }
    data_filler { type: "gaussian" std: 1 }
    data_filler { type: "constant" value: 1 }
  }
}
layer {
  name: "ip"
  type: "InnerProduct"
  bottom: "data"
  top: "ip"
  inner_product_param {
    num_output: 4
    weight_filler { type: "xavier" }
  }
}
layer {
  name: "accuracy"
  type: "Accuracy"
  bottom: "ip"
  bottom: "label"
  top: "accuracy"
  include { phase: TEST }
}
layer {
  name: "loss"
  type: "SoftmaxWithLoss"
  bottom: "ip"
  bottom: "label"
  top: "loss"
}
"""

SOLVER = """\
net: "net.prototxt"
base_lr: 0.1
lr_policy: "fixed"
momentum: 0.9
max_iter: 20
display: 10
test_iter: 4
test_interval: 10
snapshot: 10
snapshot_prefix: "tiny"
random_seed: 7
solver_mode: CPU
"""

_SCRIPTS = Path(sysconfig.get_path("scripts"))


@dataclass
class Engine:
    """Runs `engine` in a folder that holds `net.prototxt` and `solver.prototxt`."""

    folder: Path
    net: str = NET
    solver: str = SOLVER

    def write(self, name: str, text: str) -> Path:
        """Writes a file into the folder."""
        path = self.folder / name
        path.write_text(text)
        return path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs `engine` with these arguments in this process, since importing torch anew takes seconds."""
        out, errors = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(errors):
            code = main.main(words)
        return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())

    def mpirun(self, ranks: int, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Runs `engine` on so many ranks, and makes sure that no process stays behind."""
        return self.mpirun_command(ranks, [sys.executable, "-m", "mgcaffe.tools.main", *words], timeout)

    def mpirun_command(self, ranks: int, command: list[str], timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Runs any command on so many ranks, and makes sure that no process stays behind."""
        found = shutil.which("mpirun", path=f"{_SCRIPTS}{os.pathsep}{os.environ.get('PATH', '')}")
        if found is None:
            pytest.skip("there is no mpirun here")
        flags = ["--oversubscribe", "--bind-to", "none", "-n", str(ranks)]
        with tempfile.TemporaryDirectory(prefix="mpirun-", ignore_cleanup_errors=True) as own:
            result = self.run_command([found, *flags, "--prtemca", "prte_tmpdir_base", own, *command], timeout)
        assert not self._left_behind(), "processes stayed behind"
        return result

    def run_command(self, command: list[str], timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Runs any command in the folder."""
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=timeout
        )

    def _left_behind(self) -> list[int]:
        """Processes that still work in this folder a second later."""
        deadline = time.monotonic() + 1
        while left := [process.pid for process in psutil.process_iter() if self._is_here(process)]:
            if time.monotonic() > deadline:
                return left
            time.sleep(0.05)
        return []

    def _is_here(self, process: psutil.Process) -> bool:
        try:
            return process.pid != os.getpid() and Path(process.cwd()) == self.folder
        except (psutil.Error, OSError):
            return False


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The command, in a folder with the small net and its solver."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    engine = Engine(tmp_path)
    engine.write("net.prototxt", engine.net)
    engine.write("solver.prototxt", engine.solver)
    return engine


@pytest.fixture(autouse=True)
def _process_as_before():
    """The command takes over logging, signals and threads; other tests want them as they were."""
    logger = logging.getLogger("mgcaffe")
    before = (logger.handlers[:], logger.level, logger.propagate)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    threads = torch.get_num_threads()
    yield
    logger.handlers[:], logger.level, logger.propagate = before
    for number, handler in handlers.items():
        signal.signal(number, handler)
    torch.set_num_threads(threads)
