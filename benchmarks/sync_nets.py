"""Convolutional nets trained with replicas, beside the same nets trained in step: test accuracies after a short run.

    python benchmarks/sync_nets.py                     # digits, LeNet and cifar10_full, under SHADOW_MA and DS_SYNC
    python benchmarks/sync_nets.py --nets lenet --syncs SHADOW_EASGD --trainers 4

The nets and solvers are those of examples/digits, models/lenet and models/cifar10_full, for fewer iterations and with
batches of 32. Instead of MNIST and CIFAR-10 the latter two see the images of examples/digits, enlarged to their size;
so this shows that such nets train, not how well they do on those data sets. The trainers are threads of one process.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

import mgcaffe
from mgcaffe.comm import Communicator, run_ranks
from mgcaffe.engine.data.lmdb.source import open_lmdb
from mgcaffe.prototxt import CommParameter, Datum, NetParameter, SolverParameter, read_net, read_solver
from mgcaffe.solvers import Solver
from mgcaffe.solvers.events import Finished

ROOT = Path(__file__).resolve().parents[1]
DIGITS = ROOT / "examples" / "digits"
IN_STEP = "GRADIENTS"
BATCH, TEST_BATCH, TESTS = 32, 45, 8


@dataclass(frozen=True)
class Case:
    """A net.

    Attributes:
        solver: the file of its solver, below the root.
        side, colours: its images; 0 for those of examples/digits themselves.
        iterations: for how long it trains.
    """

    solver: str
    side: int
    colours: int
    iterations: int


CASES = {
    "digits": Case("examples/digits/solver.prototxt", 0, 0, 150),
    "lenet": Case("models/lenet/solver.prototxt", 28, 1, 200),
    "cifar10_full": Case("models/cifar10_full/solver.prototxt", 32, 3, 150),
}


def images(part: str, colours: int) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """Yield the images of examples/digits, each in a grey of its own for each of the colours, and their labels."""
    source = open_lmdb(str(DIGITS / f"{part}_lmdb"))
    draw = np.random.default_rng(0)
    for number in range(len(source)):
        datum = Datum.FromString(source.value(number))
        grey = np.frombuffer(datum.data, np.uint8).reshape(datum.height, datum.width, 1)
        tint = draw.uniform(0.5, 1, colours) if colours > 1 else np.ones(1)
        yield (grey * tint).astype(np.uint8), datum.label


def net_of(case: Case, solver: SolverParameter, folder: Path) -> NetParameter:
    """Return the net, with data that is there."""
    net = read_net(ROOT / solver.net)
    for part, layer in zip(("train", "test"), (layer for layer in net.layer if layer.type == "Data"), strict=True):
        path = DIGITS / f"{part}_lmdb"
        if case.side:
            path = folder / f"digits_{case.side}_{part}_lmdb"
            if not path.exists():
                mgcaffe.write_lmdb(
                    images(part, case.colours), path, size=(case.side, case.side), gray=case.colours == 1
                )
        layer.data_param.source = str(path)
        layer.data_param.batch_size = BATCH if part == "train" else TEST_BATCH
        if layer.transform_param.mean_file:
            layer.transform_param.ClearField("mean_file")
            layer.transform_param.mean_value.append(64)
    return net


def accuracy(case: Case, sync: str, trainers: int, folder: Path) -> float:
    """Train, and return the test accuracy of rank 0's net."""
    param = read_solver(ROOT / case.solver)
    net = net_of(case, param, folder)
    for field in ("net", "snapshot"):
        param.ClearField(field)
    param.net_param.CopyFrom(net)
    param.max_iter = param.test_interval = case.iterations
    param.test_iter[0], param.test_initialization, param.snapshot_after_train = TESTS, False, False
    param.random_seed, param.solver_mode = 1, SolverParameter.CPU
    param.comm_param.sync = CommParameter.Sync.Value(sync)
    found = []

    class Listener:
        """Waits for the end."""

        def on_event(self, event: object) -> None:
            if isinstance(event, Finished) and event.scores:
                found.extend(score.value for score in event.scores[0] if score.name == "accuracy")

    def trainer(communicator: Communicator) -> None:
        with Solver(param, communicator=communicator, listeners=[Listener()]) as solver:
            solver.solve()

    run_ranks(trainers, trainer)
    return found[0]


def main() -> None:
    """Read the command line, train, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--syncs", nargs="+", default=["SHADOW_MA", "DS_SYNC"], choices=CommParameter.Sync.keys())
    parser.add_argument("--trainers", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "sync_nets", help="of the enlarged images")
    options = parser.parse_args()
    os.nice(5)
    torch.set_num_threads(1)
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    syncs = [IN_STEP, *options.syncs]
    print(f"| net | iterations | {' | '.join(syncs)} |")
    print("|---" * (2 + len(syncs)) + "|")
    for name in options.nets:
        case = CASES[name]
        cells = [f"{accuracy(case, sync, options.trainers, folder):.3f}" for sync in syncs]
        print(f"| {name} | {case.iterations} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
