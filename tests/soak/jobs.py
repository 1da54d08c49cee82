"""Starts jobs of three ranks through the launcher, with faults in them, and tells how they ended."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

RANKS = 3
ROOT = Path(__file__).resolve().parents[2]
LONGEST_S = 150.0
"""A job that takes longer hangs: on a busy machine the set-up alone can take half a minute."""

_NET = """
name: "small"
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 16 dim: 8 } shape { dim: 16 } data_filler { type: "gaussian" } data_filler { type: "constant" } } }
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
  inner_product_param { num_output: 16 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""

_SOLVER = """
net: "net.prototxt" base_lr: 0.0001 lr_policy: "fixed" momentum: 0.9 max_iter: {max_iter} display: 100
test_iter: 30 test_interval: 50 snapshot: 40 snapshot_keep: 2 snapshot_prefix: "small" random_seed: 7 solver_mode: CPU
comm_param {{ schedule: WFBP }}
"""

_LAUNCH = """
import sys
from mgcaffe.tools import main
from mgcaffe.tools.launcher import launcher
program = sys.argv[1:3]
launcher.launch = lambda flags, launch=launcher.launch: launch(flags, program)
sys.exit(main.main(["train", *sys.argv[3:]]))
"""


@dataclass(frozen=True)
class Result:
    """How a job ended: its code, all its output, and how long it took."""

    code: int | None
    output: str
    seconds: float


class Job:
    """One job in a folder of its own.

    Args:
        folder: where; net and solver are written there.
        words: flags of `engine train` beside the solver.
        fault: `rank:point:how:occurrence`, as `faulty_engine` reads it.
        max_iter: where training ends.
    """

    def __init__(self, folder: Path, words: Sequence[str] = (), *, fault: str = "", max_iter: int = 10_000_000) -> None:
        self.folder = folder
        (folder / "net.prototxt").write_text(_NET)
        (folder / "solver.prototxt").write_text(_SOLVER.format(max_iter=max_iter))
        environment: Mapping[str, str] = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
            "RECORD": str(folder),
            "FAULT": fault,
        }
        self._log = folder / "log"
        program = [sys.executable, str(Path(__file__).with_name("faulty_engine.py"))]
        self._began = time.monotonic()
        with self._log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _LAUNCH, *program, "-np", str(RANKS), *words, "solver.prototxt"],
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def output(self) -> str:
        """What the job has printed so far."""
        return self._log.read_text(errors="replace")

    def await_(self, condition: Callable[[], bool]) -> bool:
        """Waits until something holds, at most `LONGEST_S`; False if the job ended first or it took longer."""
        deadline = time.monotonic() + LONGEST_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                return condition()
            time.sleep(0.005)
        return True

    def end(self) -> Result:
        """Waits for the end; a job that hangs is killed and has no code."""
        try:
            code: int | None = self.process.wait(LONGEST_S)
        except subprocess.TimeoutExpired:
            code = None
            self.process.kill()
            self.process.wait()
        return Result(code, self.output(), time.monotonic() - self._began)

    def left_behind(self) -> list[int]:
        """Processes that work in the job's folder a second after its end; they are killed."""
        deadline = time.monotonic() + 1.0
        while left := [process for process in psutil.process_iter() if self._is_here(process)]:
            if time.monotonic() > deadline:
                for process in left:
                    process.kill()
                return [process.pid for process in left]
            time.sleep(0.05)
        return []

    def _is_here(self, process: psutil.Process) -> bool:
        try:
            return process.pid != os.getpid() and Path(process.cwd()) == self.folder.resolve()
        except (psutil.Error, OSError):
            return False
