"""Test accuracies after the same training in float32 and in 16 bits.

    OMP_NUM_THREADS=1 python benchmarks/precision.py                   # digits and cifar10_full, three seeds each
    OMP_NUM_THREADS=1 python benchmarks/precision.py --nets digits --seeds 1 2 3 4 5
    OMP_NUM_THREADS=1 python benchmarks/precision.py --nets digits --precisions float32 fp16

The nets and solvers are those of examples/digits and models/cifar10_full, for fewer iterations. The latter is given
images that are made from those of examples/digits, enlarged and coloured at random (benchmarks/sync_nets.py), so its
figures show that precisions train alike, not how well the net does on CIFAR-10.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import sync_nets
import torch

from mgcaffe.prototxt import SolverParameter, read_solver
from mgcaffe.solvers import Solver
from mgcaffe.solvers.events import Finished, IterationDone

ITERATIONS = {"digits": 1000, "cifar10_full": 300}
BATCHES = {"digits": 32, "cifar10_full": 100}
PRECISIONS = ("float32", "bf16", "fp16")


class Listener:
    """Keeps the accuracy at the end, and the latest losses."""

    def __init__(self) -> None:
        self.accuracy = 0.0
        self.losses: list[float] = []

    def on_event(self, event: object) -> None:
        """Take an event."""
        if isinstance(event, IterationDone):
            self.losses.append(event.loss)
        if isinstance(event, Finished) and event.scores:
            self.accuracy = next(score.value for score in event.scores[0] if score.name == "accuracy")


def train(name: str, precision: str, seed: int, folder: Path) -> Listener:
    """Train a net and return what was found."""
    case = sync_nets.CASES[name]
    param = read_solver(sync_nets.ROOT / case.solver)
    net = sync_nets.net_of(case, param, folder)
    next(layer for layer in net.layer if layer.type == "Data").data_param.batch_size = BATCHES[name]
    for field in ("net", "snapshot"):
        param.ClearField(field)
    param.net_param.CopyFrom(net)
    param.max_iter = param.test_interval = ITERATIONS[name]
    param.test_iter[0], param.test_initialization, param.snapshot_after_train = sync_nets.TESTS, False, False
    param.random_seed, param.solver_mode, param.precision = seed, SolverParameter.CPU, precision
    listener = Listener()
    with Solver(param, listeners=[listener]) as solver:
        solver.solve()
    return listener


def main() -> None:
    """Read the command line, train, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", choices=ITERATIONS, default=list(ITERATIONS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=["float32", "bf16"])
    parser.add_argument("--folder", type=Path, default=sync_nets.ROOT / "build" / "sync_nets", help="of the images")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    names = " | ".join(options.precisions)
    print(f"| net | iterations | batch | seed | accuracy, {names} | last 20 losses, {names} |")
    print("|---" * (4 + 2 * len(options.precisions)) + "|")
    for name in options.nets:
        for seed in options.seeds:
            found = [train(name, precision, seed, folder) for precision in options.precisions]
            cells = [f"{each.accuracy:.3f}" for each in found]
            cells += [f"{statistics.fmean(each.losses[-20:]):.4f}" for each in found]
            print(f"| {name} | {ITERATIONS[name]} | {BATCHES[name]} | {seed} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
