"""A net with tables that are looked up in every way, and data for it, for the tests of divided tables."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import torch

from mgcaffe.comm import run_ranks
from mgcaffe.solvers.events.testing import Tested
from mgcaffe.solvers.serving.embedding_server import EmbeddingServer
from tests.support.solverkit import Recorder, make_solver, solver_source

RECORDS, BATCH = 60, 12
ADAGRAD = 'type: "AdaGrad" delta: 1e-3'
KINDS = {"SGD": 'type: "SGD"', "AdaGrad": ADAGRAD, "row_wise": ADAGRAD + " row_wise_adagrad: true"}

# How many rows of each table a pass looks up, so that they are assigned whole, or the first one by rows.
LOADS = {"whole": "a,3\nb,4\nc,6\n", "rows": "a,1000\nb,1\nc,1\n"}

# Three bags an item in the first, some of them empty, five ids with repetitions in the second, one in the last two,
# which share a table. The first is the largest.
_NET = """
layer {{ name: "data" type: "HDF5Data" top: "a" top: "lengths" top: "b" top: "c" top: "label"
  hdf5_data_param {{ source: "{folder}/data.txt" batch_size: {batch} }} include {{ phase: TRAIN }} }}
layer {{ name: "test_data" type: "HDF5Data" top: "a" top: "lengths" top: "b" top: "c" top: "label"
  hdf5_data_param {{ source: "{folder}/data.txt" batch_size: 2 }} include {{ phase: TEST }} }}
layer {{ name: "a" type: "EmbeddingBag" bottom: "a" bottom: "lengths" top: "bags" {param}
  embedding_bag_param {{ input_dim: 40 num_output: 4 mode: {mode} bags: LENGTHS
    weight_filler {{ type: "gaussian" std: 1 }} }} }}
layer {{ name: "flat" type: "Reshape" bottom: "bags" top: "pa" reshape_param {{ shape {{ dim: -1 dim: 12 }} }} }}
layer {{ name: "b" type: "EmbeddingBag" bottom: "b" top: "pb" {param}
  embedding_bag_param {{ input_dim: 11 num_output: 3 mode: {mode} }} }}
layer {{ name: "c" type: "EmbeddingBag" bottom: "c" top: "pc" param {{ name: "c" {shared} }}
  embedding_bag_param {{ input_dim: 7 num_output: 2 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "c2" type: "EmbeddingBag" bottom: "b" top: "pc2" param {{ name: "c" }}
  embedding_bag_param {{ input_dim: 7 num_output: 2 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "join" type: "Concat" bottom: "pa" bottom: "pb" bottom: "pc" bottom: "pc2" top: "join" }}
layer {{ name: "ip1" type: "InnerProduct" bottom: "join" top: "ip1"
  inner_product_param {{ num_output: 4 weight_filler {{ type: "gaussian" std: 0.2 }} }} }}
layer {{ name: "tanh" type: "TanH" bottom: "ip1" top: "ip1" }}
layer {{ name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param {{ num_output: 1 weight_filler {{ type: "gaussian" std: 0.2 }} }} }}
layer {{ name: "loss" type: "EuclideanLoss" bottom: "ip2" bottom: "label" top: "loss" }}
"""


def write_table_data(folder: Path) -> None:
    """Write ids, lengths, labels and files of loads; the second ids are below 7, so that two tables have such rows."""
    random = np.random.default_rng(5)
    ends = np.sort(random.integers(0, 5, (RECORDS, 2)), axis=1)
    lengths = np.diff(np.concatenate([np.zeros((RECORDS, 1), int), ends, np.full((RECORDS, 1), 4)], axis=1))
    values = {
        "a": np.minimum(random.zipf(1.3, (RECORDS, 4)) - 1, 39),
        "lengths": lengths,
        "b": random.integers(0, 7, (RECORDS, 5)),
        "c": random.integers(0, 7, (RECORDS, 1)),
        "label": random.standard_normal((RECORDS, 1)),
    }
    assert (lengths == 0).any()
    with h5py.File(folder / "data.h5", "w") as file:
        for name, each in values.items():
            file[name] = each.astype(np.float32)
    (folder / "data.txt").write_text(f"{folder}/data.h5\n")
    for name, rows in LOADS.items():
        (folder / f"{name}.csv").write_text("table,rows\n" + rows)


def loads(folder: Path, name: str) -> str:
    """A solver's fields that assign tables by one of LOADS."""
    return f' comm_param {{ embedding_loads: "{folder}/{name}.csv" }}'


def table_net(folder: Path, ranks: int, *, mode: str = "SUM", param: str = "", shared: str = "", micro: int = 1) -> str:
    """The net for so many ranks, whose batches make one of 12 with `micro` micro-batches."""
    return _NET.format(folder=folder, batch=BATCH // ranks // micro, mode=mode, param=param, shared=shared)


def whole_tensors(solver) -> list[torch.Tensor]:
    """Collective: dense weights, whole tables and histories of tables, complete on rank 0; [] elsewhere."""

    def gather():
        tables = [table.parameter for table in solver.net.arena.tables]
        blobs = [table.whole_values or table.data for table in tables]
        blobs += solver._updater.history_blobs(solver.net.parameters)
        found = [blob.clone() if isinstance(blob, torch.Tensor) else blob.fetch() for blob in blobs]
        return [solver.net.arena.data.clone(), *found]

    return solver._on_rank0(gather) or []


def train_tables(size: int, folder: Path, net: str, fields: str, iterations: int, **options):
    """Train on threads as ranks.

    Args:
        size: how many ranks.
        folder, net, fields: as for `make_solver`.
        iterations: how many.
        options: `restore` and `weights`: files to begin with; `snapshot`: write one at the end.

    Returns:
        Rank 0's whole tensors, its losses, and the scores of its tests.
    """

    def rank(communicator):
        recorder = Recorder()
        alone = None if size == 1 else communicator
        with make_solver(
            net, fields, folder, recorder=recorder, communicator=alone, weights=options.get("weights", [])
        ) as solver:
            if "restore" in options:
                solver.restore(options["restore"])
            solver.step(iterations)
            if options.get("snapshot"):
                solver.snapshot()
            scores = [score.value for event in recorder.of(Tested) for score in event.scores]
            return whole_tensors(solver), recorder.losses, scores

    return run_ranks(size, rank, timeout_s=60)[0]


def train_with_servers(servers, folder, net, fields, iterations, *, trainers=1, sync="NONE", ahead=0, **options):
    """Do as `train_tables` with trainers and embedding servers as threads.

    Args:
        servers: how many.
        folder, net, fields: as for `make_solver`.
        iterations: how many; several numbers: one step each; None: all of `max_iter`, by `solve`.
        trainers, sync, ahead: how many trainers, and the solver's `sync` and `lookahead`.
        options: `restore`, `weights` and `snapshot` as for `train_tables`; `workers`: more fields of `comm_param`;
            `before`: called with each trainer's solver and rank before it trains.

    Returns:
        What each trainer has come to, a recorder last, and each server's figures.
    """
    more = options.get("workers", "")
    fields = f"{fields} comm_param {{ sync: {sync} embedding_servers: {servers} lookahead: {ahead} {more} }}"

    def rank(communicator):
        group = communicator.split(0 if communicator.rank < trainers else None)
        if group is None:
            param = solver_source(net, fields, folder).param
            return EmbeddingServer(param, communicator, trainers, dtype=torch.float64).run()
        recorder = Recorder()
        with make_solver(
            net, fields, folder, recorder=recorder, communicator=group, embedding_servers=communicator,
            weights=options.get("weights", []),
        ) as solver:  # fmt: skip
            if "restore" in options:
                solver.restore(options["restore"])
            if "before" in options:
                options["before"](solver, group.rank)
            if iterations is None:
                solver.solve()
            for count in iterations if isinstance(iterations, list) else [iterations or 0]:
                solver.step(count)
                if options.get("snapshot"):
                    solver.snapshot()
            scores = [score.value for event in recorder.of(Tested) for score in event.scores]
            return whole_tensors(solver), recorder.losses, scores, recorder

    found = run_ranks(trainers + servers, rank, timeout_s=60)
    return found[:trainers], found[trainers:]


def differences(mine, other) -> str | None:
    """Say where what `train_tables` returned differs by more than 1e-12; None: nowhere."""
    for name, one, two in zip(("weights", "losses", "scores"), mine, other, strict=False):
        if len(one) != len(two):
            return f"{len(one)} and {len(two)} {name}"
        for number, (value, expected) in enumerate(zip(one, two, strict=True)):
            value, expected = torch.as_tensor(value), torch.as_tensor(expected)
            if value.shape != expected.shape or not torch.allclose(value, expected, rtol=1e-12, atol=1e-12):
                return f"{name}, number {number}: {value} and {expected}"
    return None
