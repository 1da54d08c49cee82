"""Kills a run with SIGKILL at random moments while it writes snapshots all the time.

Whatever snapshot is then on disk must load and verify, and the next run resumes from the newest one.

python -m tests.soak.killed_snapshots [COUNT]

Each run is a fork of this process, which has loaded torch and started no thread: it is training within
milliseconds. It snapshots after every iteration, in the two formats in turn, keeps three and the best one.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NoReturn

import torch

from mgcaffe.comm.transport.communicator import SingleCommunicator
from mgcaffe.errors import EngineError
from mgcaffe.prototxt import parse_solver
from mgcaffe.solvers import Solver
from mgcaffe.solvers.events import Event, Warned
from mgcaffe.solvers.snapshots.reading import newest_snapshot, read_snapshot
from mgcaffe.solvers.snapshots.store import stored_snapshots
from tests.soak import Row

NAME = "kill"
SEED = 31
FULL, FEW = 100, 5
MAX_S = 0.25
KEPT = 3

_SOLVER = """
type: "Adam" base_lr: 0.001 momentum: 0.9 lr_policy: "fixed" max_iter: 1000000 random_seed: 3 solver_mode: CPU
snapshot: 1 snapshot_keep: {kept} snapshot_best: "loss" test_iter: 1 test_interval: 2 test_initialization: false
snapshot_prefix: "{folder}/net" snapshot_format: {form}
net_param {{
  layer {{ name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {{
    shape {{ dim: 4 dim: 64 }} shape {{ dim: 4 dim: 8 }} data_filler {{ type: "gaussian" }}
    data_filler {{ type: "gaussian" }} }} }}
  layer {{ name: "wide" type: "InnerProduct" bottom: "data" top: "wide"
    inner_product_param {{ num_output: 1000 weight_filler {{ type: "xavier" }} }} }}
  layer {{ name: "out" type: "InnerProduct" bottom: "wide" top: "out"
    inner_product_param {{ num_output: 8 weight_filler {{ type: "xavier" }} }} }}
  layer {{ name: "loss" type: "EuclideanLoss" bottom: "out" bottom: "label" top: "loss" }}
}}
"""


def run(full: bool) -> list[Row]:
    """A hundred kills, or five; in a process of its own, since this one may have threads."""
    command = [sys.executable, "-m", "tests.soak.killed_snapshots", str(FULL if full else FEW)]
    row = Row("SIGKILL while snapshots are written: all on disk verify, the run resumes")
    began = time.monotonic()
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    row.cases = FULL if full else FEW
    *problems, note = result.stdout.splitlines() or [f"ended with {result.returncode}"]
    row.failures = problems if not result.returncode else [*problems, note, *result.stderr.splitlines()[-3:]]
    row.note = note
    row.seconds = time.monotonic() - began
    return [row]


def main(kills: int) -> int:
    """Prints what went wrong, a line each, and at last what happened; returns 1 if anything did."""
    torch.set_num_threads(1)
    moments = random.Random(SEED)
    problems: list[str] = []
    began_at: list[int] = []
    half_written = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number in range(kills + 1):
            # The last run is not killed: it only resumes.
            delay = moments.uniform(0, MAX_S) if number < kills else None
            form = ("BINARYPROTO", "HDF5")[number % 2]
            printed = run_and_kill(folder, form, delay)
            if (folder / "failed").exists():
                problems.append(f"run {number}: {(folder / 'failed').read_text()}")
                break
            if not printed.isdigit():
                problems.append(f"run {number}: {printed or 'said nothing'}")
                continue
            newest = max((int(printed), *began_at))
            if int(printed) < newest:
                problems.append(f"run {number} resumed at {printed}, and an earlier one at {newest}")
            began_at.append(int(printed))
            half_written = len(list(folder.glob("*.tmp")))
            problems += [f"after kill {number}: {problem}" for problem in broken(folder)]
        # Kills between writing and pruning leave more than that for a while; the last run was not killed.
        left = stored_snapshots(folder / "net")
        if len(left) > KEPT + 1:
            problems.append(f"{len(left)} snapshots are kept: {[each.state.name for each in left]}")
    print(*problems, sep="\n", end="\n" if problems else "")
    print(
        f"{sum(1 for iteration in began_at if iteration)} resumes up to iteration {max(began_at, default=0)},"
        f" {half_written} unfinished files left by the kills"
    )
    return 1 if problems else 0


def run_and_kill(folder: Path, form: str, delay: float | None) -> str:
    """Starts a run, kills it after so many seconds of training, and returns the iteration where it began."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _train(folder, form, writer, forever=delay is not None)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        printed = pipe.readline().strip()
        time.sleep(delay or 0)
        os.kill(child, signal.SIGKILL if delay is not None else 0)
        os.waitpid(child, 0)
    return printed


def _train(folder: Path, form: str, pipe: int, forever: bool) -> NoReturn:
    """The child: resumes from the newest snapshot, tells where, and trains. It never returns into the parent's code."""
    try:
        source = parse_solver(_SOLVER.format(folder=folder, form=form, kept=KEPT), file="solver.prototxt")
        warnings: list[str] = []

        def emit(event: Event) -> None:
            if isinstance(event, Warned):
                warnings.append(event.text)

        newest = newest_snapshot(source.param, source, SingleCommunicator(), emit)
        with Solver(source.param, source=source) as solver:
            if newest is not None:
                solver.restore(newest)
            os.write(pipe, f"{warnings[0] if warnings else solver.iteration}\n".encode())
            solver.step(10**6 if forever else 2)
    except BaseException:
        (folder / "failed").write_text(traceback.format_exc().splitlines()[-1])
    finally:
        os._exit(0)


def broken(folder: Path) -> list[str]:
    """What is wrong with the snapshots on disk."""
    problems = []
    for snapshot in stored_snapshots(folder / "net"):
        try:
            read_snapshot(snapshot.state)
            if snapshot.manifest is not None:
                snapshot.check()
        except EngineError as error:
            problems.append(str(error.message))
    return problems


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else FULL))
