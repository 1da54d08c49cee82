"""Kills trainers and servers with SIGKILL at random moments, half of them while a snapshot is being written.

The job ends with exit code 69 and names the rank, every snapshot on disk verifies, and the next job resumes from the
newest one.
"""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from mgcaffe.errors import EngineError
from mgcaffe.solvers.snapshots.reading import read_snapshot
from mgcaffe.solvers.snapshots.store import stored_snapshots
from tests.soak import Row, count
from tests.support.jobs import RunningJob
from tests.support.mpirun import AS_ROOT, rank_pids

NAME = "replicas"
SEED = 41
FULL, TENTH = 20, 1
MAX_S = 150.0
PEER_FAILED = 69

# Snapshots after every iteration, of weights that take a while to write.
_SOLVER = """
net: "net.prototxt" base_lr: 0.0001 lr_policy: "fixed" max_iter: 10000000 snapshot: 1 snapshot_keep: 3
snapshot_prefix: "net" random_seed: 7 solver_mode: CPU
"""
_DENSE = """
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 4 dim: 64 } shape { dim: 4 dim: 8 } data_filler { type: "gaussian" } data_filler { type: "gaussian" } } }
layer { name: "wide" type: "InnerProduct" bottom: "data" top: "wide"
  inner_product_param { num_output: 4000 weight_filler { type: "xavier" } } }
layer { name: "out" type: "InnerProduct" bottom: "wide" top: "out"
  inner_product_param { num_output: 8 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "out" bottom: "label" top: "loss" }
"""
_TABLE = """
layer { name: "ids" type: "DummyData" top: "ids" dummy_data_param {
  shape { dim: 4 dim: 2 } data_filler { type: "constant" value: 3 } } }
layer { name: "table" type: "EmbeddingBag" bottom: "ids" top: "pooled"
  embedding_bag_param { input_dim: 20000 num_output: 8 } }
layer { name: "both" type: "Eltwise" bottom: "pooled" bottom: "label" top: "sum" }
layer { name: "more" type: "EuclideanLoss" bottom: "pooled" bottom: "label" top: "more" }
"""

# What is killed: (its name, what the message calls it, its rank, the net, the flags of three ranks).
_ROLES = [
    ("trainer 0", "", 0, _DENSE, ["--sync=shadow_ma"]),
    ("trainer 2, all replicas saved", "", 2, _DENSE, ["--sync=shadow_ma", "--snapshot_replicas"]),
    (
        "a synchronization server", ", synchronization server,", 2, _DENSE,
        ["--sync=shadow_easgd", "--sync_servers=1"],
    ),
    ("an embedding server", ", embedding server,", 2, _DENSE + _TABLE, ["--sync=shadow_ma", "--embedding_servers=1"]),
]  # fmt: skip


def run(full: bool) -> list[Row]:
    """So many kills of each role; one of one role in the suite."""
    chance = random.Random(SEED)
    rows = []
    for name, role, rank, net, flags in _ROLES if full else _ROLES[2:3]:
        with tempfile.TemporaryDirectory() as folder:
            series = _Series(Path(folder), rank, role, net, flags)
            moments = [None if number % 2 else chance.uniform(0, 1.5) for number in range(FULL if full else TENTH)]
            cases = [series.case(delay) for delay in moments]
            row = count(f"SIGKILL to {name}: code 69, named, snapshots whole, the run resumes", cases)
            problem = series.resume() if full else None
            row.failures += [f"at the end: {problem}"] if problem else []
            row.note = f"up to iteration {series.newest}"
            rows.append(row)
    return rows


class _Series:
    """Jobs in one folder, each going on from the snapshots that the one before left."""

    def __init__(self, folder: Path, rank: int, role: str, net: str, flags: list[str]) -> None:
        self.newest = 0
        self._folder = folder
        self._named = f"error: rank {rank} of 3{role} on {os.uname().nodename}"
        self._rank = rank
        self._flags = flags
        (folder / "net.prototxt").write_text(net)
        (folder / "solver.prototxt").write_text(_SOLVER)

    def case(self, delay: float | None) -> tuple[str, Callable[[], str | None]]:
        """Return the name of a kill, and what makes it."""
        name = "while a snapshot is written" if delay is None else f"{delay:.2f} s after one"
        return name, lambda: self.kill(delay)

    def kill(self, delay: float | None) -> str | None:
        """Run a job and kill the rank: so long after a first snapshot, or (None) while one is written."""
        job = self._job()
        before = self.newest
        if not job.await_(lambda: self._newest() > before, MAX_S):
            return f"it did not start: {job.end(MAX_S).output[-2000:]}"
        if delay is not None:
            time.sleep(delay)
        else:
            job.await_(lambda: bool(list(self._folder.glob("*.tmp"))), MAX_S)
        os.kill(rank_pids(job)[self._rank], signal.SIGKILL)
        result = job.end(MAX_S, patience_s=1.0)
        if result.left_behind:
            return f"processes {result.left_behind} were left behind"
        said = self._named in result.output and "was killed by signal 9 (SIGKILL)" in result.output
        if result.hung or result.returncode != PEER_FAILED or not said:
            return f"exit code {result.returncode}: {result.output[-2000:]}"
        if before and f"Resuming from net_iter_{before}." not in result.output:
            return f"it did not resume from iteration {before}: {result.output[:2000]}"
        self.newest = self._newest()
        return self._broken()

    def resume(self) -> str | None:
        """Run a job from the last snapshot to its end."""
        job = self._job(f"--max_iter={self.newest + 5}")
        result = job.end(MAX_S, patience_s=1.0)
        return f"exit code {result.returncode}: {result.output[-2000:]}" if result.returncode else None

    def _job(self, *words: str) -> RunningJob:
        command = [
            sys.executable,
            "-m",
            "mgcaffe.tools.main",
            "train",
            "-np",
            "3",
            *self._flags,
            "--snapshot=auto",
            *words,
        ]
        return RunningJob([*command, "solver.prototxt"], environment=AS_ROOT, cwd=self._folder, places_files=False)

    def _newest(self) -> int:
        found = [re.search(r"net_iter_(\d+)\.solverstate$", path.name) for path in self._folder.glob("net_iter_*")]
        return max((int(match[1]) for match in found if match), default=0)

    def _broken(self) -> str | None:
        """Return what is wrong with the snapshots on disk."""
        prefixes = {path.name.partition("_iter_")[0] for path in self._folder.glob("*.solverstate")}
        for prefix in prefixes:
            for snapshot in stored_snapshots(self._folder / prefix):
                try:
                    read_snapshot(snapshot.state)
                    snapshot.check()
                except EngineError as error:
                    return error.message
        return None
