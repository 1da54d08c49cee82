"""Stopped and resumed equals never stopped, to the bit: every solver type, 1, 2 and 4 ranks, both formats.

Twenty iterations that snapshot after ten, against a new solver that resumes there and makes the other ten. The net
draws random numbers (dropout, mirrored crops) and keeps statistics, its data layers prefetch, the rate steps at the
snapshot, tests go on reading.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import lmdb
import numpy as np
import torch

from mgcaffe.comm.transport.communicator import Communicator, SingleCommunicator
from mgcaffe.comm.transport.threaded import run_ranks
from mgcaffe.prototxt import Datum, parse_solver
from mgcaffe.solvers import Solver
from mgcaffe.solvers.events import IterationDone
from mgcaffe.solvers.events.testing import Tested
from tests.soak import Row, count

NAME = "resume"
SEED = 20
HALF, WHOLE = 10, 20
TYPES = {
    "SGD": "base_lr: 0.05 momentum: 0.9",
    "Nesterov": "base_lr: 0.05 momentum: 0.9",
    "AdaGrad": "base_lr: 0.05",
    "RMSProp": "base_lr: 0.01 rms_decay: 0.98",
    "AdaDelta": "base_lr: 1 momentum: 0.95 delta: 1e-6",
    "Adam": "base_lr: 0.01 momentum: 0.9 momentum2: 0.999",
}
VARIANTS = {
    "step at the snapshot": 'lr_policy: "multistep" gamma: 0.5 stepvalue: 10 stepvalue: 14',
    "iter_size 2, step before and after": (
        'iter_size: 2 lr_policy: "multistep" gamma: 0.5 stepvalue: 9 stepvalue: 11 clip_gradients: 1'
    ),
}

_NET = """
layer {{ name: "data" type: "Data" top: "data" top: "label" include {{ phase: TRAIN }}
  transform_param {{ crop_size: 4 mirror: true }}
  data_param {{ source: "{source}" backend: LMDB batch_size: 3 }} }}
layer {{ name: "data" type: "Data" top: "data" top: "label" include {{ phase: TEST }}
  transform_param {{ crop_size: 4 }}
  data_param {{ source: "{source}" backend: LMDB batch_size: 2 }} }}
layer {{ name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param {{ num_output: 3 kernel_size: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "norm" type: "BatchNorm" bottom: "conv" top: "conv" }}
layer {{ name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  param {{ lr_mult: 1 }} param {{ lr_mult: 2 decay_mult: 0 }}
  inner_product_param {{ num_output: 5 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "drop" type: "Dropout" bottom: "ip" top: "ip" }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


class Case(NamedTuple):
    """One resume."""

    type: str
    ranks: int
    form: str
    variant: str

    def __str__(self) -> str:
        return f"{self.type}, {self.ranks} rank(s), {self.form}, {self.variant}"


class Outcome(NamedTuple):
    """What a run left on one rank."""

    weights: torch.Tensor
    histories: list[torch.Tensor]
    losses: list[float]
    scores: list[float]

    def differs_in(self, other: Outcome) -> str | None:
        """The first difference in what both did."""
        if not torch.equal(self.weights, other.weights):
            return "weights differ"
        pairs = zip(self.histories, other.histories, strict=True)
        if not all(torch.equal(mine, theirs) for mine, theirs in pairs):
            return "histories differ"
        if self.losses[-HALF:] != other.losses[-HALF:]:
            return "losses differ"
        shorter = min(len(self.scores), len(other.scores))
        return "test scores differ" if self.scores[-shorter:] != other.scores[-shorter:] else None


def all_cases() -> list[Case]:
    """Every solver type, number of ranks, format and variant."""
    return [
        Case(type_name, ranks, form, variant)
        for type_name in TYPES
        for ranks in (1, 2, 4)
        for form in ("BINARYPROTO", "HDF5")
        for variant in VARIANTS
    ]


def write_records(folder: Path) -> Path:
    """An LMDB of 23 small images of five classes."""
    numbers = np.random.default_rng(5)
    source = folder / "records"
    with lmdb.open(str(source), map_size=1 << 20) as environment, environment.begin(write=True) as transaction:
        for index in range(23):
            pixels = numbers.integers(0, 256, (2, 6, 6), dtype=np.uint8)
            datum = Datum(channels=2, height=6, width=6, data=pixels.tobytes(), label=index % 5)
            transaction.put(b"%08d" % index, datum.SerializeToString())
    return source


def train(case: Case, folder: Path, restore: Path | None, communicator: Communicator) -> Outcome:
    """Trains up to the end on one rank, from the beginning or from a snapshot."""
    source = parse_solver(
        f'type: "{case.type}" {TYPES[case.type]} {VARIANTS[case.variant]} max_iter: {WHOLE} weight_decay: 0.01'
        f" average_loss: 3 random_seed: 7 solver_mode: CPU snapshot_after_train: false snapshot: {HALF}"
        f' test_iter: 3 test_interval: 5 snapshot_format: {case.form} snapshot_prefix: "{folder}/net"'
        f" net_param {{ {_NET.format(source=folder.parent / 'records')} }}",
        file=str(folder / "solver.prototxt"),
    )
    listener = _Listener()
    with Solver(source.param, source=source, communicator=communicator, listeners=[listener]) as solver:
        if restore is not None:
            solver.restore(str(restore))
        solver.step(WHOLE - solver.iteration)
        histories = [history.clone() for history in solver._updater.histories]
        return Outcome(solver.net.arena.data.clone(), histories, listener.losses, listener.scores)


class _Listener:
    def __init__(self) -> None:
        self.losses: list[float] = []
        self.scores: list[float] = []

    def on_event(self, event: object) -> None:
        if isinstance(event, IterationDone):
            self.losses.append(event.loss)
        elif isinstance(event, Tested):
            self.scores += [score.value for score in event.scores]


def compare(case: Case, folder: Path) -> str | None:
    """Trains without and with a stop; says what differs."""
    folder.mkdir()

    def on_all_ranks(restore: Path | None) -> list[Outcome]:
        if case.ranks == 1:
            return [train(case, folder, restore, SingleCommunicator())]
        return run_ranks(case.ranks, lambda communicator: train(case, folder, restore, communicator), timeout_s=120)

    whole = on_all_ranks(None)
    suffix = ".h5" if case.form == "HDF5" else ""
    resumed = on_all_ranks(folder / f"net_iter_{HALF}.solverstate{suffix}")
    for rank, (mine, theirs) in enumerate(zip(whole, resumed, strict=True)):
        if len(theirs.losses) != HALF:
            return f"rank {rank} made {len(theirs.losses)} iterations after the resume"
        problem = mine.differs_in(theirs)
        if problem:
            return f"rank {rank}: {problem}"
    return None


def cases(chosen: list[Case], folder: Path) -> Iterator[tuple[str, partial[str | None]]]:
    """The comparisons to run."""
    write_records(folder)
    for number, case in enumerate(chosen):
        yield str(case), partial(compare, case, folder / str(number))


def run(full: bool) -> list[Row]:
    """All cases, or a seeded tenth."""
    chosen = all_cases()
    if not full:
        chosen = random.Random(SEED).sample(chosen, len(chosen) // 10)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        note = "torch.equal on weights and histories; losses and test scores equal"
        return [count("20 iterations equal 10 + resume + 10", cases(chosen, Path(folder)), note)]


if __name__ == "__main__":
    print(*run("--tenth" not in sys.argv), sep="\n")
