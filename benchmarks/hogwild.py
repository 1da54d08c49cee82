"""Examples per second of several Hogwild workers on one replica, against one worker with as many computing threads.

    python benchmarks/hogwild.py                                  # all nets, as many threads as there are cores
    python benchmarks/hogwild.py --nets lenet --workers 1 2 4 --rounds 20
    python benchmarks/hogwild.py --write                          # put the table into benchmarks/results/hogwild.md

Every way trains a net of its own from records in memory (HDF5, generated); they take turns within a round, a few
iterations each, so that whatever else the machine does hits all alike. Reported are medians over the rounds, each with
the median of the ratio to one worker with one thread within a round:

    by the clock            examples/s as a user sees them; on a busy machine two threads also get more of it than one
    with a core each        examples/s of each worker, added up, without the time in which its thread was ready and the
                            system had no core for it (/proc/thread-self/schedstat): an estimate, since a worker may
                            still wait for Python's lock while the one that holds it has no core
    of processor time       examples per second on a core: what a worker's updates cost the others
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch

from mgcaffe.engine import Net
from mgcaffe.prototxt import parse_net, parse_solver, read_net
from mgcaffe.solvers import Solver

RESULTS = Path(__file__).resolve().parent / "results" / "hogwild.md"
LENET = Path(__file__).resolve().parents[1] / "models" / "lenet" / "train_val.prototxt"
TABLES, ROWS, LENGTH, DENSE = 26, 10_000, 16, 13
_RECORDS = 4096
_WARM_UP = 2
_LEAST = 5


@dataclass(frozen=True)
class Way:
    """How a net is trained: so many workers with so many computing threads in all."""

    workers: int
    threads: int
    lock: bool = False

    @property
    def name(self) -> str:
        """The way in words."""
        workers = f"{self.workers} worker{'s' * (self.workers > 1)}"
        threads = max(1, self.threads // self.workers)
        return f"{workers}, {threads} thread{'s' * (threads > 1)} each{', locked updates' * self.lock}"


def write_records(folder: Path, blobs: dict[str, np.ndarray]) -> Path:
    """Write a blob each to an HDF5 file; return the list that names it."""
    with h5py.File(folder / "records.h5", "w") as file:
        for name, values in blobs.items():
            file[name] = values.astype(np.float32)
    listing = folder / "records.txt"
    listing.write_text(f"{folder / 'records.h5'}\n", encoding="utf-8")
    return listing


def data_layer(listing: Path, tops: list[str], batch: int) -> str:
    """Return the layer that reads the records."""
    named = " ".join(f'top: "{top}"' for top in tops)
    fields = f'hdf5_data_param {{ source: "{listing}" batch_size: {batch} }}'
    return f'layer {{ name: "data" type: "HDF5Data" {named} {fields} }}\n'


def dlrm_like(folder: Path, batch: int) -> str:
    """Return a click-through-rate net: dense layers of 64 to 16, a bag for each table, joined, 256 to one logit."""
    random = np.random.default_rng(5)
    blobs = {"dense": random.random((_RECORDS, DENSE)), "label": random.integers(0, 2, (_RECORDS, 1))}
    for table in range(TABLES):
        blobs[f"ids{table}"] = (ROWS ** random.random((_RECORDS, 1)) - 1).astype(int)
    listing = write_records(folder, blobs)

    def layer(name: str, bottom: str, outputs: int) -> str:
        relu = f'layer {{ name: "{name}r" type: "ReLU" bottom: "{name}" top: "{name}" }}\n' if outputs > 1 else ""
        return (
            f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" inner_product_param'
            f' {{ num_output: {outputs} weight_filler {{ type: "xavier" }} }} }}\n{relu}'
        )

    bags = "".join(
        f'layer {{ name: "bag{table}" type: "EmbeddingBag" bottom: "ids{table}" top: "bag{table}"'
        f" embedding_bag_param {{ input_dim: {ROWS} num_output: {LENGTH}"
        f' weight_filler {{ type: "uniform" min: -0.01 max: 0.01 }} }} }}\n'
        for table in range(TABLES)
    )
    joined = " ".join(f'bottom: "bag{table}"' for table in range(TABLES))
    return (
        data_layer(listing, list(blobs), batch)
        + layer("one", "dense", 64) + layer("two", "one", LENGTH) + bags
        + f'layer {{ name: "join" type: "Concat" bottom: "two" {joined} top: "join" }}\n'
        + layer("three", "join", 256) + layer("logit", "three", 1)
        + 'layer { name: "loss" type: "SigmoidCrossEntropyLoss" bottom: "logit" bottom: "label" top: "loss" }\n'
    )  # fmt: skip


def lenet(folder: Path, batch: int) -> str:
    """Return models/lenet with generated images in the place of its data."""
    random = np.random.default_rng(5)
    blobs = {"data": random.random((_RECORDS, 1, 28, 28)), "label": random.integers(0, 10, _RECORDS)}
    listing = write_records(folder, blobs)
    param = read_net(LENET)
    layers = [layer for layer in param.layer if layer.type not in ("Data", "Accuracy")]
    del param.layer[:]
    param.layer.extend(layers)
    return data_layer(listing, list(blobs), batch) + str(param)


NETS = {"dlrm_like": (dlrm_like, 128), "dlrm_like_2048": (dlrm_like, 2048), "lenet": (lenet, 64)}


def solver_of(net: str, way: Way) -> Solver:
    """Make the solver of one way."""
    lock = str(way.lock).lower()
    text = (
        'base_lr: 0.01 lr_policy: "fixed" max_iter: 1000000 snapshot_after_train: false random_seed: 1 solver_mode: CPU'
        f" comm_param {{ hogwild_threads: {way.workers} hogwild_lock: {lock if way.workers > 1 else 'false'} }}"
    )
    source = parse_solver(text)
    source.param.net_param.CopyFrom(parse_net(net).param)
    solver = Solver(source.param)
    for layer in (layer for each in solver.worker_nets for layer in each.data_layers):
        layer.param.data_param.prefetch = 0  # so that what a worker's batches cost is on its own thread
    return solver


class WorkerClock:
    """Takes, in each pass of one worker's net, the time and how long its thread has waited for a core so far."""

    def __init__(self, net: Net) -> None:
        self._moments: list[tuple[float, float]] = []
        net.before_forward.append(self._layer_begins)

    def _layer_begins(self, layer: int) -> None:
        if layer == 0:
            waited = int(Path("/proc/thread-self/schedstat").read_text(encoding="utf-8").split()[1])
            self._moments.append((time.perf_counter(), waited * 1e-9))

    def passes_per_s(self) -> float:
        """Return the passes per second since this was last asked, without the waiting."""
        (began, waited_before), (ended, waited) = self._moments[0], self._moments[-1]
        count, self._moments = len(self._moments) - 1, []
        return count / (ended - began - (waited - waited_before))


def measure(name: str, ways: list[Way], rounds: int, seconds: float) -> Iterator[str]:
    """Yield the rows of one net's table."""
    make, batch = NETS[name]
    with tempfile.TemporaryDirectory() as folder:
        net = make(Path(folder), batch)
        solvers = [solver_of(net, way) for way in ways]
        clocks = [[WorkerClock(each) for each in solver.worker_nets] for solver in solvers]
        figures: list[list[tuple[float, float, float]]] = [[] for _ in ways]
        iterations = [_LEAST] * len(ways)
        for number in range(_WARM_UP + rounds):
            order = list(range(len(ways)))
            for index in order if number % 2 else order[::-1]:
                way, solver = ways[index], solvers[index]
                torch.set_num_threads(way.threads)
                began, on_cores = time.perf_counter(), time.process_time()
                solver.step(iterations[index])
                took, used = time.perf_counter() - began, time.process_time() - on_cores
                records = iterations[index] * batch * way.workers
                own = batch * sum(each.passes_per_s() for each in clocks[index])
                if number >= _WARM_UP:
                    figures[index].append((records / took, own, records / used))
                else:
                    iterations[index] = max(_LEAST, round(iterations[index] * seconds / took))
        for solver in solvers:
            solver.close()
    for way, mine in zip(ways, figures, strict=True):
        cells = []
        for values, first in zip(zip(*mine, strict=True), zip(*figures[0], strict=True), strict=True):
            ratio = statistics.median(one / another for one, another in zip(values, first, strict=True))
            cells.append(f"{statistics.median(values):,.0f} ({ratio:.2f})")
        yield f"| {name} | {batch} | {way.name} | {' | '.join(cells)} |"


def main() -> None:
    """Read the command line and run the comparison."""
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", choices=NETS, default=list(NETS))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4], help="beside one worker with one thread")
    parser.add_argument("--threads", type=int, default=cores, help="computing threads of all workers together")
    parser.add_argument("--rounds", type=int, default=15, help="counted turns of each way")
    parser.add_argument("--seconds", type=float, default=0.5, help="about how long a turn takes")
    parser.add_argument("--write", action="store_true", help=f"put the table into {RESULTS.name}")
    options = parser.parse_args()
    ways = [Way(1, 1), *(Way(count, options.threads) for count in options.workers if count > 1 or options.threads > 1)]
    ways += [Way(count, options.threads, lock=True) for count in options.workers if count == 2]
    lines = [
        "| net | batch of a worker | way | by the clock | with a core each | of processor time |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for name in options.nets:
        for line in measure(name, ways, options.rounds, options.seconds):
            print(line, flush=True)
            lines.append(line)
    if options.write:
        head, _, rest = RESULTS.read_text(encoding="utf-8").partition("| net |")
        tail = rest.partition("\n\n")[2]
        RESULTS.write_text(head + "\n".join(lines) + "\n" + (f"\n{tail}" if tail else ""), encoding="utf-8")


if __name__ == "__main__":
    main()
