"""Look-ups of an embedding server against those of local tables: a measurement to run under mpirun.

    mpirun --bind-to none -n 2 python benchmarks/embedding_server.py

Rank 0 is the trainer, rank 1 the server. Both look up batches of 2048 in 26 tables of 10^5 rows of 16 float32, one row
each. It prints how many batches a second are looked up (and updated, by SGD), by local tables as a layer does it, and
by the server: one after another, and with the next look-ups begun before the answer to the last is taken, as
`--lookahead` does. All sides are interleaved; the median counts. At the end stands the processor time of a batch's
look-ups, which a busy machine changes less: of local tables, and of the server's process with all that it does.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import torch

from mgcaffe.comm.tables.assignment import RowRange
from mgcaffe.comm.tables.client import TableClient
from mgcaffe.comm.tables.messages import Bags, Request
from mgcaffe.comm.tables.pending import PendingLookUp
from mgcaffe.comm.tables.server import TableServer
from mgcaffe.comm.transport.communicator import Communicator
from mgcaffe.comm.transport.connect import connect
from mgcaffe.engine.arena import Table
from mgcaffe.engine.kernels.rows import read_rows_of, stack
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.prototxt import SolverParameter
from mgcaffe.solvers.serving.served_rows import ServedRows
from mgcaffe.solvers.update.row_updates import RowUpdates
from mgcaffe.solvers.update.rules import Numbers
from mgcaffe.tools.running.process import speed_up_memory

TABLES, ROWS, WIDTH, BATCH = 26, 100_000, 16, 2048
ROUNDS = 15


PARAM = SolverParameter(type="SGD")


def make_tables() -> tuple[list[RowParameter], RowUpdates]:
    """Return tables in this process, and what updates them."""
    parameters = [RowParameter((ROWS, WIDTH)) for _ in range(TABLES)]
    for parameter, values in zip(parameters, torch.randn(TABLES, ROWS, WIDTH).unbind(), strict=True):
        parameter.data = values
    tables = [Table(number, str(number), parameter) for number, parameter in enumerate(parameters)]
    return parameters, RowUpdates(PARAM, "SGD", tables)


class Local:
    """Looks up and updates tables in this process, as layers and a solver do."""

    def __init__(self) -> None:
        self._parameters, self._updates = make_tables()
        stacked = stack([parameter.data for parameter in self._parameters])
        assert stacked is not None
        self._stack = stacked

    def run(self, batches: list[list[Request]], gradients: list[np.ndarray] | None) -> None:
        """Look all batches up, and update the rows of each."""
        for batch in batches:
            ids = [torch.from_numpy(each.bags.rows) for each in batch]
            read_rows_of(self._stack.whole, self._stack.rows(ids))
            if gradients is not None:
                for parameter, rows, gradient in zip(self._parameters, ids, gradients, strict=True):
                    parameter.add_rows(rows, torch.from_numpy(gradient))
                self._updates.apply(Numbers(PARAM, 0.01, 0, 0.0, 0.0, 0.0), 1.0)
                for parameter in self._parameters:
                    parameter.fresh = True


class Served:
    """Looks up and updates the server's.

    Args:
        client: sends.
        ahead: how many look-ups are begun before the answer to one is taken.
    """

    def __init__(self, client: TableClient, ahead: int) -> None:
        self._client = client
        self._ahead = ahead

    def run(self, batches: list[list[Request]], gradients: list[np.ndarray] | None) -> None:
        """Look all batches up, and update the rows of each."""
        begun: list[PendingLookUp] = []
        for number in range(len(batches)):
            for batch in batches[number + len(begun) : number + 1 + self._ahead]:
                begun.append(self._client.look_up([each._replace(trains=gradients is not None) for each in batch]))
            look_up = begun.pop(0)
            look_up.wait()
            if gradients is not None:
                self._client.update([(look_up, gradients)], 0.01)


def train(communicator: Communicator, batches: int) -> None:
    """Print the figures of all sides, and end the server."""
    random = np.random.default_rng(1)
    data = [
        [Request(table, Bags(random.integers(0, ROWS, BATCH)), False) for table in range(TABLES)]
        for _ in range(batches)
    ]
    gradients = [random.standard_normal((BATCH, WIDTH)).astype(np.float32) for _ in range(TABLES)]
    assignment = [[RowRange(0, 0, ROWS)] for _ in range(TABLES)]
    local = Local()
    # What is measured first is look-ups alone, so that the server can tell its processor time of them.
    for given in (None, gradients):
        client = TableClient(communicator, [(ROWS, WIDTH)] * TABLES, assignment, [1], np.dtype(np.float32))
        sides: dict[str, Callable[..., None]] = {
            "local tables": local.run,
            "server, one after another": Served(client, 0).run,
            "server, one look-up ahead": Served(client, 1).run,
            "server, two look-ups ahead": Served(client, 2).run,
        }
        rates, local_s = _measure(sides, data, given)
        client.close()
        server_s = communicator.broadcast_object(0.0, root=1)
        print("look-ups and updates" if given else "look-ups")
        for name, rate in rates.items():
            print(f"    {name:<28}{rate:>8.0f} batches/s{rate / rates['local tables']:>8.2f}")
        print(f"    processor time of a batch: local {local_s * 1e3:.2f} ms, server {server_s * 1e3:.2f} ms")


def serve(communicator: Communicator) -> None:
    """Serve both measurements."""
    tables = ServedRows(PARAM, *make_tables())
    for _ in range(2):
        began = time.process_time()
        figures = TableServer(communicator, [0], tables).run()
        communicator.broadcast_object((time.process_time() - began) / figures.look_ups, root=1)


def _measure(
    sides: dict[str, Callable[..., None]], data: list[list[Request]], gradients: list[np.ndarray] | None
) -> tuple[dict[str, float], float]:
    """Return the batches a second of each side, and the processor time of a batch with local tables."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    processor = []
    for _ in range(ROUNDS):
        for name, run in sides.items():
            began, on_core = time.perf_counter(), time.thread_time()
            run(data, gradients)
            rates[name].append(len(data) / (time.perf_counter() - began))
            if name == "local tables":
                processor.append((time.thread_time() - on_core) / len(data))
    return {name: float(np.median(each)) for name, each in rates.items()}, float(np.median(processor))


def main() -> None:
    """Train or serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=20, help="of each measurement")
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    speed_up_memory()
    torch.set_num_threads(1)
    communicator = connect()
    if communicator.rank == 0:
        train(communicator, arguments.batches)
    else:
        serve(communicator)


if __name__ == "__main__":
    main()
