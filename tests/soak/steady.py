"""LeNet on two ranks with tests, snapshots and logs on the way: memory and open files stay flat.

models/lenet reads two LMDBs of random images, in the short run in small batches: what leaks does so with every batch,
snapshot or test. Both ranks write down their resident memory and open files (`measured_engine.py`). How growth is
judged, over the second half of the run, when caches have found their sizes:

- memory: a straight line is fitted by least squares; it may rise by `MAX_GROWTH` bytes from the middle to the end.
  Pools find their size within some hundred iterations, so no run is shorter than `SHORT`.
- open files: the last quarter's median may not be above the third quarter's; a descriptor lost in one of the snapshots
  or tests, of which each quarter has some, would raise it.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import linear_regression, median

import numpy as np

from mgcaffe.engine.data.lmdb.writer import LmdbWriter
from mgcaffe.prototxt import Datum
from tests.soak import Row, count
from tests.soak.jobs import MAX_S
from tests.support.mpirun import run_mpi
from tests.support.paths import MODELS, PROGRAMS

NAME = "steady"
RANKS = 2
FULL, SHORT = 2000, 1000
BATCHES = ("batch_size: 64", "batch_size: 100")
SMALL_BATCH = "batch_size: 8"
SNAPSHOTS = 20
MAX_GROWTH = 1 << 20
FEWEST_SAMPLES = 20
_SLOWEST_S = 1.0
"""How long an iteration may take on a busy machine before the job counts as hung."""

_SOLVER = """
net: "net.prototxt" base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: "inv" gamma: 0.0001 power: 0.75
max_iter: {iterations} display: 10 test_iter: 5 test_interval: {interval} snapshot: {interval} snapshot_keep: 2
snapshot_best: "accuracy" snapshot_prefix: "lenet" random_seed: 7 solver_mode: CPU
"""


@dataclass(frozen=True)
class Sample:
    """What one rank held at one moment.

    Attributes:
        iteration: updates done.
        memory: resident, in bytes.
        files: open descriptors.
    """

    iteration: int
    memory: int
    files: int


def run(full: bool) -> list[Row]:
    """2,000 iterations, or 1,000."""
    iterations = FULL if full else SHORT
    notes: list[str] = []
    row = count(
        f"{iterations:,} LeNet iterations on two ranks: memory and open files flat",
        [("lenet", partial(_check, iterations, notes))],
    )
    row.note = "; ".join(notes)
    return [row]


def _check(iterations: int, notes: list[str]) -> str | None:
    with tempfile.TemporaryDirectory() as name:
        code, output, samples = train(Path(name), iterations, small=iterations < FULL)
    if code != 0:
        return f"exit code {code}: {output[-2000:]}"
    problems = []
    for rank in range(RANKS):
        problem, note = judge(samples[rank], iterations)
        notes.append(f"rank {rank}: {note}")
        problems += [f"rank {rank}: {problem}"] if problem else []
    return "; ".join(problems) or None


def train(folder: Path, iterations: int, *, small: bool) -> tuple[int | None, str, list[list[Sample]]]:
    """Runs LeNet in a folder, with ranks that measure themselves; by small batches if asked for.

    Returns:
        mpirun's exit code (None: the job hung), what it printed, and the samples of each rank.
    """
    for part, records in (("train", 1000), ("test", 500)):
        _write_images(folder / f"examples/mnist/mnist_{part}_lmdb", records)
    net = (MODELS / "lenet/train_val.prototxt").read_text()
    for batch in BATCHES:
        assert net.count(batch) == 1
        net = net.replace(batch, SMALL_BATCH if small else batch)
    (folder / "net.prototxt").write_text(net)
    text = _SOLVER.format(iterations=iterations, interval=iterations // SNAPSHOTS)
    (folder / "solver.prototxt").write_text(text)
    result = run_mpi(
        [PROGRAMS / "measured_engine.py", "train", "solver.prototxt", "--json_log=run.json", "--log_dir=logs"],
        n=RANKS, timeout=MAX_S + _SLOWEST_S * iterations, environment={"RECORD": str(folder)}, cwd=folder,
    )  # fmt: skip
    return result.code, result.output, [_read(folder / f"held.{rank}") for rank in range(RANKS)]


def _read(path: Path) -> list[Sample]:
    """What a rank has written down; nothing if it never came to it."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [Sample(*map(int, line.split())) for line in lines]


def judge(samples: list[Sample], iterations: int) -> tuple[str | None, str]:
    """What grew, or None; and the figures in words.

    Args:
        samples: of one rank, in order.
        iterations: of the whole run.
    """
    half = [each for each in samples if each.iteration > iterations // 2]
    third = [each.files for each in half if each.iteration <= iterations * 3 // 4]
    last = [each.files for each in half if each.iteration > iterations * 3 // 4]
    if min(len(third), len(last)) < FEWEST_SAMPLES:
        return f"only {len(third)} and {len(last)} samples in the last two quarters", ""
    slope = linear_regression([each.iteration for each in half], [each.memory for each in half]).slope
    growth = slope * (iterations / 2)
    files = median(last)
    resident = median(each.memory for each in half) / 2**20
    note = f"{resident:.0f} MiB, {slope:+.0f} bytes per iteration, {files:.0f} open files"
    if growth > MAX_GROWTH:
        return f"memory grew by {growth / 2**20:.1f} MiB in the second half ({note})", note
    if files > median(third):
        return f"open files grew from {median(third):.0f} to {files:.0f}", note
    return None, note


def _write_images(folder: Path, records: int) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(11)
    with LmdbWriter(folder) as writer:
        for number in range(records):
            pixels = random.integers(0, 256, 28 * 28, dtype=np.uint8)
            datum = Datum(channels=1, height=28, width=28, data=pixels.tobytes(), label=number % 10)
            writer.put(b"%08d" % number, datum.SerializeToString())
