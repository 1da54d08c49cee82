"""What a net learns in one pass over generated data when trainers keep their replicas together in different ways.

    python benchmarks/sync_quality.py --write           # goes on with what build/sync_quality/runs.json holds already
    python benchmarks/sync_quality.py --only MA shadow --seeds 1

The trainers are threads of one process. Every run sees as many examples, each of them once, shared out over the
trainers: a small DLRM (models/dlrm_small) whose tables are part of each trainer's replica (Embed layers), so that the
rule that brings replicas together has all that is learned in its hands. SGD at a rate that falls to zero, low enough
that a pass at half of it ends visibly worse: interpolation of a replica that trains meanwhile works like a smaller
rate, and the runs without synchronization at a half and a quarter of the rate show how that looks. A synchronization in
the background takes at least --link_ms (an emulated link). The seed decides on the start and on the first of the rows;
data is made by examples/ctr/generate.py.

Scores are those of the first trainer's replica on generated test rows, lower normalized entropy is better. Each run is
kept as soon as it is done, so an interrupted benchmark goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mgcaffe.comm import Communicator, run_ranks
from mgcaffe.prototxt import TEST, NetParameter, parse_solver, read_net
from mgcaffe.solvers import Solver
from mgcaffe.solvers.events import Finished

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "sync_quality.md"
NET = ROOT / "models" / "dlrm_small" / "train_val.prototxt"
ROWS, TEST_ROWS, BATCH, TEST_BATCH = 200_000, 20_000, 256, 1000
VALUES, ZIPF, TABLE_ROWS = 300, 1.5, 1024
RATE, LATE = 0.2, 5
_FIRST_CELL = "| | normalized entropy |"

Run = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One way to train.

    Attributes:
        name: in the table; each has another one.
        comm: what stands in the solver's `comm_param`.
        rate: factor on the learning rate.
        trainers: how many.
        against: the case that it should come out like.
        late: trainers in lockstep without `sync` get the increment of MA by hand, at this rate, exactly five iterations
            after the copy; 0: they don't.
    """

    name: str
    comm: str = ""
    rate: float = 1.0
    trainers: int = 2
    against: str = ""
    late: float = 0.0


def every(rule: str, k: int, trainers: int = 2) -> Case:
    """Return a rule in the foreground."""
    more = "" if trainers == 2 else f", {trainers} trainers"
    return Case(f"{rule} every {k}{more}", f"sync: {rule} sync_every: {k}", trainers=trainers)


def shadow(rule: str, alpha: float | None = None) -> Case:
    """Return a rule in the background, at its default rate or another."""
    more, rate = ("", "") if alpha is None else (f", a = {alpha:g}", f" alpha: {alpha}")
    return Case(f"shadow {rule}{more}", f"sync: SHADOW_{rule}{rate}", against=f"{rule} every 5")


CASES = (
    Case("one process", trainers=1),
    Case("none", "sync: NONE"),
    Case("none, half the rate", "sync: NONE", rate=0.5),
    Case("none, a quarter of the rate", "sync: NONE", rate=0.25),
    every("MA", 1),
    every("MA", 5),
    every("MA", 30),
    every("EASGD", 5),
    every("BMUF", 5),
    shadow("MA"),
    shadow("EASGD"),
    shadow("BMUF"),
    shadow("MA", 1),
    shadow("MA", 0.25),
    shadow("BMUF", 1),
    shadow("BMUF", 0.25),
    Case("shadow MA, interpolated, a = 0.5", "sync: SHADOW_MA merge: INTERPOLATE alpha: 0.5", against="MA every 5"),
    Case("MA by hand, 5 iterations late", "sync: NONE", against="MA every 5", late=1.0),
    Case("MA by hand, 5 iterations late, a = 0.5", "sync: NONE", against="MA every 5", late=0.5),
    every("MA", 1, trainers=4),
    Case("DS-Sync, 4 trainers", "sync: DS_SYNC", trainers=4, against="MA every 1, 4 trainers"),
)


class Runs:
    """The runs that are done, in a file.

    Args:
        path: the file; made with the first run.
        settings: runs with other ones do not count.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self._path, self._settings = path, dict(settings)
        self._runs: list[Run] = json.loads(path.read_text()) if path.exists() else []

    def find(self, case: Case, seed: int) -> Run | None:
        """Return a run."""
        wanted = self._settings | {"case": case.name, "seed": seed}
        return next((run for run in self._runs if all(run.get(name) == value for name, value in wanted.items())), None)

    def add(self, case: Case, seed: int, found: Mapping[str, Any]) -> None:
        """Keep a run."""
        self._runs.append({**self._settings, "case": case.name, "seed": seed, **found})
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(self._runs, indent=1) + "\n")
        partial.replace(self._path)


def make_data(folder: Path, rows: int) -> None:
    """Generate the rows, unless they are there."""
    words = [f"--rows={rows}", f"--test_rows={TEST_ROWS}", f"--values={VALUES}", f"--zipf={ZIPF}"]
    made = folder / "made.txt"  # written last
    if made.exists() and made.read_text() == " ".join(words):
        return
    made.unlink(missing_ok=True)
    subprocess.run([sys.executable, str(ROOT / "examples/ctr/generate.py"), str(folder), *words], check=True)
    for name in ("train", "test"):
        shutil.rmtree(folder / f"{name}_lmdb", ignore_errors=True)
        files = [str(folder / f"generated_{name}.tsv"), str(folder / f"{name}_lmdb")]
        subprocess.run([sys.executable, "-m", "mgcaffe.tools.main", "convert_criteo", *files], check=True, cwd=ROOT)
    made.write_text(" ".join(words))


def make_net(folder: Path, rows: int) -> NetParameter:
    """Return models/dlrm_small with tables that are part of the replica; its data is in the folder."""
    net = read_net(NET)
    for layer in net.layer:
        if layer.type == "CriteoData":
            param = layer.criteo_data_param
            is_test = any(rule.phase == TEST for rule in layer.include)
            param.source[0] = str(folder / ("test_lmdb" if is_test else "train_lmdb"))
            param.table_size[0] = TABLE_ROWS
            param.batch_size = TEST_BATCH if is_test else BATCH
            param.rand_skip = 0 if is_test else rows
        elif layer.type == "EmbeddingBag":
            layer.type = "Embed"
            table = layer.embed_param
            table.input_dim, table.num_output = TABLE_ROWS, layer.embedding_bag_param.num_output
            table.bias_term = False
            bound = TABLE_ROWS**-0.5
            table.weight_filler.type, table.weight_filler.min, table.weight_filler.max = "uniform", -bound, bound
            layer.ClearField("embedding_bag_param")
    return net


class LastEvent:
    """Keeps the event at the end of a run."""

    finished: Finished

    def on_event(self, event: object) -> None:
        """Take an event."""
        if isinstance(event, Finished):
            self.finished = event


class LateIncrement:
    """MA by increment without chance: between iterations of trainers that wait for each other.

    Args:
        trainers: how many.
        every: iterations from a copy of the replicas to its merge, which is when the next copy is made.
        rate: how much of the increment is added.
    """

    def __init__(self, trainers: int, every: int, rate: float) -> None:
        self._every, self._rate, self._iteration = every, rate, 0
        self._replicas: list[torch.Tensor] = []
        self._copies: list[torch.Tensor] = []
        self._barrier = threading.Barrier(trainers, self._between)

    def attach(self, solver: Solver) -> None:
        """Take part with a solver's replica."""
        self._replicas.append(solver.net.arena.data)
        solver.add_callback(self._meet, lambda: None)

    def _meet(self) -> None:
        self._barrier.wait()

    def _between(self) -> None:
        if self._iteration % self._every == 0:
            if self._copies:
                mean = sum(self._copies[1:], self._copies[0]) / len(self._copies)
                for replica, copy in zip(self._replicas, self._copies, strict=True):
                    replica += self._rate * (mean - copy)
            self._copies = [replica.clone() for replica in self._replicas]
        self._iteration += 1


def train(case: Case, seed: int, folder: Path, rows: int, link_ms: float) -> Run:
    """Train once; return the scores."""
    iterations = rows // (BATCH * case.trainers)
    link = f'emulate_link: "a={link_ms / 1e3},b=0"' if "SHADOW" in case.comm else ""
    param = parse_solver(
        f'base_lr: {RATE * case.rate} lr_policy: "poly" power: 1 max_iter: {iterations} random_seed: {seed}'
        f" test_iter: {TEST_ROWS // TEST_BATCH} test_interval: {iterations} test_initialization: false"
        f" snapshot_after_train: false solver_mode: CPU comm_param {{ {case.comm} {link} }}",
        file="solver.prototxt",
    ).param
    param.net_param.CopyFrom(make_net(folder, rows))

    late = LateIncrement(case.trainers, LATE, case.late)

    def trainer(communicator: Communicator | None) -> Finished:
        last = LastEvent()
        with Solver(param, communicator=communicator, listeners=[last]) as solver:
            if case.late:
                late.attach(solver)
            solver.solve()
        return last.finished

    end = run_ranks(case.trainers, trainer)[0] if case.trainers > 1 else trainer(None)
    scores = {score.name: score.value for score in end.scores[0]}
    means = {score.name: score.value for score in end.mean_scores[0]} if end.mean_scores else {}
    figures = end.synchronization
    return {
        "normalized_entropy": scores["normalized_entropy"],
        "auc": scores["auc"],
        "mean_of_replicas": means.get("normalized_entropy"),
        "gap": figures.gap if figures is not None and figures.synchronizations else None,
        "seconds": end.training_s,
    }


def table(cases: Sequence[Case], runs: Runs, seeds: Sequence[int]) -> Iterator[str]:
    """Yield the lines of the table: means over the seeds, and the largest distance of a seed from the mean."""
    yield f"{_FIRST_CELL} of the mean of all replicas | AUC | gap | less that of its counterpart, seed by seed |"
    yield "|---|---|---|---|---|---|"
    for case in cases:
        done = [run for seed in seeds if (run := runs.find(case, seed))]
        if not done:
            continue
        cells = [_spread([run[name] for run in done]) for name in ("normalized_entropy", "mean_of_replicas", "auc")]
        gaps = [run["gap"] for run in done if run["gap"]]
        cells.append(f"{statistics.mean(gaps):.1f}" if gaps else "")
        pairs = [(run, runs.find(_by_name(case.against), run["seed"])) for run in done] if case.against else []
        less = [run["normalized_entropy"] - other["normalized_entropy"] for run, other in pairs if other]
        cells.append(f"{_spread(less, '+.4f')} ({case.against})" if less else "")
        yield f"| {case.name} | {' | '.join(cells)} |"


def _by_name(name: str) -> Case:
    return next(case for case in CASES if case.name == name)


def _spread(values: Sequence[float | None], form: str = ".4f") -> str:
    there = [value for value in values if value is not None]
    if not there:
        return ""
    mean = statistics.mean(there)
    return f"{mean:{form}} ± {max(abs(value - mean) for value in there):.4f}"


def main() -> None:
    """Read the command line and run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases whose names begin so")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--rows", type=int, default=ROWS, help=f"examples of a run ({ROWS})")
    parser.add_argument("--link_ms", type=float, default=100.0, help="least time of a background round (100)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "sync_quality", help="of data and runs.json")
    parser.add_argument("--write", action="store_true", help=f"put the table into {RESULTS.name}")
    options = parser.parse_args()
    os.nice(5)
    torch.set_num_threads(1)
    folder = options.folder.resolve()
    make_data(folder, options.rows)
    settings = {"rows": options.rows, "link_ms": options.link_ms, "rate": RATE, "batch": BATCH}
    runs = Runs(folder / "runs.json", settings)
    cases = [case for case in CASES if not options.only or case.name.startswith(tuple(options.only))]
    for seed in options.seeds:
        for case in cases:
            if runs.find(case, seed) is None:
                runs.add(case, seed, found := train(case, seed, folder, options.rows, options.link_ms))
                print(f"seed {seed}, {case.name}: {found}", file=sys.stderr, flush=True)
    lines = list(table(cases, runs, options.seeds))
    print("\n".join(lines))
    if options.write:
        head, _, rest = RESULTS.read_text(encoding="utf-8").partition(_FIRST_CELL)
        tail = rest.partition("\n\n")[2]
        RESULTS.write_text(head + "\n".join(lines) + "\n" + (f"\n{tail}" if tail else ""), encoding="utf-8")


if __name__ == "__main__":
    main()
