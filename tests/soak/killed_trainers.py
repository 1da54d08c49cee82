"""Kills trainers and servers with SIGKILL at random moments, half of them while a snapshot is being written.

The job ends with exit code 69 and names the rank, every snapshot on disk verifies, and the next job resumes from the
newest one. Where a trainer may be lost (`--on_trainer_loss=continue`) the others go on without it until they are
stopped.
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
from typing import NamedTuple

from mgcaffe.comm.supervision.verdict import UNEXPLAINED
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
PEER_FAILED, STOPPED = 69, 75

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

_BOTH_SERVERS = ["--sync=shadow_easgd", "--sync_servers=1", "--embedding_servers=1", "--on_trainer_loss=continue"]


class _Role(NamedTuple):
    """What is killed: its name, its rank, the net, the flags, how many ranks there are, whether the others go on.

    `called` is what the message calls it, `cause` what it says of its end.
    """

    name: str
    rank: int
    net: str
    flags: list[str]
    ranks: int = 3
    goes_on: bool = False
    called: str = ""
    cause: str = "was killed by signal 9 (SIGKILL)"


_ROLES = [
    _Role("trainer 0", 0, _DENSE, ["--sync=shadow_ma"]),
    _Role("trainer 2, all replicas saved", 2, _DENSE, ["--sync=shadow_ma", "--snapshot_replicas"]),
    _Role(
        "a synchronization server", 2, _DENSE, ["--sync=shadow_easgd", "--sync_servers=1"],
        called=", synchronization server,",
    ),
    _Role(
        "an embedding server", 2, _DENSE + _TABLE, ["--sync=shadow_ma", "--embedding_servers=1"],
        called=", embedding server,",
    ),
    _Role("trainer 1 that may be lost", 1, _DENSE + _TABLE, [*_BOTH_SERVERS, "--hogwild_threads=2"], 5, True),
    # Where ranks may be lost mpirun does not say by which signal one was.
    _Role(
        "trainer 0 where others may be lost", 0, _DENSE + _TABLE, _BOTH_SERVERS, 4,
        called=", trainer,", cause=UNEXPLAINED,
    ),
    _Role(
        "an embedding server where trainers may be lost", 2, _DENSE + _TABLE, _BOTH_SERVERS, 4,
        called=", embedding server,", cause=UNEXPLAINED,
    ),
    _Role(
        "trainer 0 of an embedding server", 0, _DENSE + _TABLE, ["--sync=shadow_ma", "--embedding_servers=1"],
        called=", trainer,",
    ),
    _Role("trainer 1 that holds tables", 1, _DENSE + _TABLE, ["--sync=shadow_ma"]),
    _Role("trainer 0 beside one that holds tables", 0, _DENSE + _TABLE, ["--sync=shadow_ma"]),
    _Role("a rank in step that has rows of a table", 1, _DENSE + _TABLE, []),
]  # fmt: skip


def run(full: bool) -> list[Row]:
    """So many kills of each role; one of one role in the suite."""
    chance = random.Random(SEED)
    rows = []
    for role in _ROLES if full else _ROLES[2:3]:
        with tempfile.TemporaryDirectory() as folder:
            series = _Series(Path(folder), role)
            moments = [None if number % 2 else chance.uniform(0, 1.5) for number in range(FULL if full else TENTH)]
            cases = [series.case(delay) for delay in moments]
            what = "the others go on, to a stop" if role.goes_on else "code 69"
            row = count(f"SIGKILL to {role.name}: {what}, named, snapshots whole, the run resumes", cases)
            problem = series.resume() if full else None
            row.failures += [f"at the end: {problem}"] if problem else []
            row.note = f"up to iteration {series.newest}"
            rows.append(row)
    return rows


class _Series:
    """Jobs in one folder, each going on from the snapshots that the one before left."""

    def __init__(self, folder: Path, role: _Role) -> None:
        self.newest = 0
        self._folder = folder
        self._role = role
        (folder / "net.prototxt").write_text(role.net)
        (folder / "solver.prototxt").write_text(_SOLVER)

    def case(self, delay: float | None) -> tuple[str, Callable[[], str | None]]:
        """Return the name of a kill, and what makes it."""
        name = "while a snapshot is written" if delay is None else f"{delay:.2f} s after one"
        return name, lambda: self.kill(delay)

    def kill(self, delay: float | None) -> str | None:
        """Run a job and kill the rank: so long after a first snapshot, or (None) while one is written."""
        job = self._job()
        before = self.newest = self._newest()
        if not job.await_(lambda: self._newest() > before, MAX_S):
            return f"it did not start: {job.end(MAX_S).output[-2000:]}"
        if delay is not None:
            time.sleep(delay)
        else:
            job.await_(lambda: bool(list(self._folder.glob("*.tmp"))), MAX_S)
        role, killed_at = self._role, self._newest()
        os.kill(rank_pids(job)[role.rank], signal.SIGKILL)
        if role.goes_on:
            # The second snapshot from now on was begun after the death.
            goes_on = job.await_(lambda: self._newest() > killed_at + 1, MAX_S)
            job.process.send_signal(signal.SIGTERM)
            if not goes_on:
                return f"it did not go on: {job.end(MAX_S).output[-2000:]}"
        result = job.end(MAX_S, patience_s=1.0)
        if result.left_behind:
            return f"processes {result.left_behind} were left behind"
        code, named = PEER_FAILED, f"error: rank {role.rank} of {role.ranks}{role.called} on {os.uname().nodename}"
        cause = role.cause
        if role.goes_on:
            code, named, cause = STOPPED, f"rank {role.rank} (trainer) is gone", "training goes on without it"
        if result.hung or result.returncode != code or named not in result.output or cause not in result.output:
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
            str(self._role.ranks),
            *self._role.flags,
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
