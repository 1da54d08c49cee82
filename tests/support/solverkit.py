"""What the solver tests share: small data sets, nets on them, solvers, and a listener that records."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.prototxt import SolverSource, SolverState, parse_net, parse_solver
from mgcaffe.solvers import Solver
from mgcaffe.solvers.events import Displayed, IterationDone
from mgcaffe.solvers.snapshots.manifest import read_manifest
from mgcaffe.solvers.snapshots.reading import read_snapshot

RECORDS, FEATURES = 22, 4


class Recorder:
    """Keeps all events."""

    def __init__(self):
        self.events = []

    def on_event(self, event):
        self.events.append(event)

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def losses(self):
        return [event.loss for event in self.of(IterationDone)]

    @property
    def shown(self):
        return [event.loss for event in self.of(Displayed)]


def write_data(folder: Path, *, records: int = RECORDS, classes: int = 0, ignored: int = 0) -> Path:
    """Writes `data` and `label` to HDF5; returns the list file.

    With `classes` the labels are class numbers, and the first of every `ignored` + 1 records has label 99, in
    an irregular order; otherwise they are real numbers.
    """
    random = np.random.default_rng(3)
    data = random.standard_normal((records, FEATURES))
    label = data @ [0.5, -1.0, 2.0, 0.25] + 0.3 + 0.1 * random.standard_normal(records)
    if classes:
        label = random.integers(0, classes, records).astype(np.float64)
        if ignored:
            label[random.permutation(records)[: records * ignored // (ignored + 1)]] = 99
    with h5py.File(folder / "data.h5", "w") as file:
        file["data"], file["label"] = data.astype(np.float32), label.astype(np.float32)
    listing = folder / "data.txt"
    listing.write_text(f"{folder / 'data.h5'}\n")
    return listing


def data_layer(listing: Path, batch: int, phase: str = "") -> str:
    include = f"include {{ phase: {phase} }}" if phase else ""
    return (
        f'layer {{ name: "data" type: "HDF5Data" top: "data" top: "label" {include}'
        f' hdf5_data_param {{ source: "{listing}" batch_size: {batch} }} }}\n'
    )


LEAST_SQUARES = """
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  inner_product_param { num_output: 1 weight_filler { type: "gaussian" } bias_filler { type: "gaussian" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "label" top: "loss" }
"""

CLASSIFIER = """
layer { name: "ip1" type: "InnerProduct" bottom: "data" top: "ip1"
  inner_product_param { num_output: 6 weight_filler { type: "xavier" } } }
layer { name: "tanh" type: "TanH" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  param { lr_mult: 1 } param { lr_mult: 2 decay_mult: 0 }
  inner_product_param { num_output: 3 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss"
  loss_param { ignore_label: 99 } }
"""


DROPOUT = CLASSIFIER.replace(
    'layer { name: "ip2"',
    'layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }\nlayer { name: "ip2"',
)


def make_solver(
    net: str,
    fields: str,
    folder: Path,
    *,
    recorder: Recorder | None = None,
    communicator=None,
    dtype=torch.float64,
    **options,
) -> Solver:
    """A solver on a net given as text; `fields` wins over the defaults here."""
    return Solver(
        solver_source(net, fields, folder).param,
        listeners=[recorder] if recorder is not None else [],
        communicator=communicator,
        dtype=dtype,
        **options,
    )


def solver_source(net: str, fields: str, folder: Path) -> SolverSource:
    """What `make_solver` reads."""
    text = "\n".join(
        [
            'base_lr: 0.05 lr_policy: "fixed"' if "lr_policy" not in fields else "",
            "max_iter: 1000" if "max_iter" not in fields else "",
            "random_seed: 7" if "random_seed" not in fields else "",
            f'snapshot_prefix: "{folder}/net"' if "snapshot_prefix" not in fields else "",
            "snapshot_after_train: false" if "snapshot_after_train" not in fields else "",
            "solver_mode: CPU" if "solver_mode" not in fields else "",
            fields,
        ]
    )
    source = parse_solver(text, file=str(folder / "solver.prototxt"))
    source.param.net_param.CopyFrom(parse_net(net).param)
    return source


def weights_of(solver: Solver) -> torch.Tensor:
    """A copy of all parameters."""
    return solver.net.arena.data.clone()


def take_weights_out(state: Path) -> None:
    """Takes the path of the weights out of a solverstate, as a program other than Caffe may leave it out."""
    state.with_name(f"{state.name}.manifest.json").unlink()
    if state.suffix == ".h5":
        with h5py.File(state, "r+") as file:
            del file["learned_net"]
        return
    message = SolverState.FromString(state.read_bytes())
    message.ClearField("learned_net")
    state.write_bytes(message.SerializeToString())


def train_ranks(
    size: int,
    folder: Path,
    fields: str,
    *,
    iterations: int,
    restore: str | None = None,
    at_once: int | None = None,
    layers: str = CLASSIFIER,
) -> list:
    """Trains a net on `size` ranks with 8 records in each iteration, and snapshots unless it was restored.

    `at_once` iterations are made by each call of `Solver.step`; None: all by one. `layers` stand behind the data layer.

    Returns:
        Each rank's (weights, recorder, plan).
    """
    net = data_layer(write_data(folder, classes=3), 8 // size) + layers

    def rank(communicator):
        recorder = Recorder()
        alone = None if size == 1 else communicator
        with make_solver(net, fields, folder, recorder=recorder, communicator=alone, dtype=torch.float32) as solver:
            if restore:
                solver.restore(restore)
            for _ in range(iterations // (at_once or iterations)):
                solver.step(at_once or iterations)
            if not restore:
                solver.snapshot()
            return weights_of(solver), recorder, solver._averaging.plan

    return run_ranks(size, rank)


def kept(folder: Path) -> list[int]:
    """Returns the iterations of the snapshots `net` in a folder; each must be complete."""
    found = []
    for state in folder.glob("net_iter_*.solverstate*"):
        if state.name.endswith(".json"):
            continue
        read_snapshot(state)
        found.append(read_manifest(state).iteration)
    names = [f"net_iter_{iteration}." for iteration in found]
    strays = [path.name for path in folder.glob("net_iter_*") if not path.name.startswith(tuple(names))]
    assert not strays
    return sorted(found)
