"""`engine` as a user runs it, in a folder with a small net and its solver."""

from __future__ import annotations

import io
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import torch

from mgcaffe.tools import main
from tests.support.jobs import JobResult, RunningJob
from tests.support.mpirun import start_mpi

PATIENCE_S = 1.0
"""For so long after the end of a job one of its processes may still be there."""

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

LMDB_NET = """
layer {
  name: "data" type: "Data" top: "image" top: "label"
  transform_param { crop_size: 6 }
  data_param { source: "absent" batch_size: 4 }
}
layer {
  name: "conv" type: "Convolution" bottom: "image" top: "conv"
  convolution_param { num_output: 2 kernel_size: 3 }
}
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param { num_output: 5 } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
"""A net whose data is not at hand."""


@contextmanager
def process_as_before() -> Iterator[None]:
    """Give back logging, signals and threads, which the command takes over, to other tests."""
    logger = logging.getLogger("mgcaffe")
    before = (logger.handlers[:], logger.level, logger.propagate)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        logger.handlers[:], level, logger.propagate = before
        logger.setLevel(level)  # forgets which levels were enabled, too
        for number, handler in handlers.items():
            signal.signal(number, handler)
        torch.set_num_threads(threads)


@dataclass
class Engine:
    """Runs `engine` in a folder that holds `net.prototxt` and `solver.prototxt`."""

    folder: Path
    net: str = NET
    solver: str = SOLVER

    def write(self, name: str, text: str) -> Path:
        """Write a file into the folder."""
        path = self.folder / name
        path.write_text(text)
        return path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `engine` with these arguments in this process, since importing torch anew takes seconds."""
        out, errors = io.StringIO(), io.StringIO()
        logging.getLogger("mgcaffe").handlers.clear()  # as in a new process: another test's stream may be closed
        with redirect_stdout(out), redirect_stderr(errors):
            code = main.main(words)
        return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())

    def mpirun(self, ranks: int, *words: str, timeout: float = 60) -> JobResult:
        """Run `engine` on so many ranks, and make sure that no process stays behind."""
        return self.mpirun_command(ranks, [sys.executable, "-m", "mgcaffe.tools.main", *words], timeout)

    def mpirun_command(self, ranks: int, command: list[str], timeout: float = 60) -> JobResult:
        """Run any command on so many ranks, and make sure that no process stays behind."""
        with start_mpi(command, ranks, cwd=self.folder, program=()) as job:
            return _ended(job, timeout)

    def run_command(self, command: list[str]) -> JobResult:
        """Run any command in the folder, and make sure that no process stays behind."""
        with RunningJob(command, cwd=self.folder) as job:
            return _ended(job, 60)


def _ended(job: RunningJob, timeout: float) -> JobResult:
    result = job.end(timeout, patience_s=PATIENCE_S)
    assert not result.hung and not result.left_behind, result.describe()
    return result
