"""An iteration with tables divided among ranks: its time by the number of rows, and how much of it is exchange.

    python benchmarks/divided_tables.py                                        # one process
    mpirun -n 2 --bind-to none python benchmarks/divided_tables.py             # two ranks, half of the batch each
    mpirun -n 2 --bind-to none python benchmarks/divided_tables.py --rows 100000 1000000 --types AdaGrad

The net is that of benchmarks/ctr.py: 26 tables of rows of 16, ids drawn by Zipf's law, generated. Reported on rank 0
are medians over the iterations: the whole iteration, its processor time, and the time in look-ups and gradients of
tables, waiting for other ranks included.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from ctr import RATE, TYPES, Case, batches_of, net_text

from mgcaffe.comm import connect
from mgcaffe.prototxt import parse_net, parse_solver
from mgcaffe.solvers import Solver

_WARM_UP = 10


class Timed:
    """Adds up the seconds within some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with its time taken."""

        def call(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - began

        return call


def measure(case: Case, communicator: Any, rounds: int) -> tuple[float, float, float]:
    """Return medians in ms: of an iteration, of its processor time, and of look-ups and gradients of tables."""
    fields = f'base_lr: {RATE} lr_policy: "fixed" max_iter: 1000000 random_seed: 1 solver_mode: CPU {TYPES[case.type]}'
    source = parse_solver(fields + " comm_param { deterministic: true }", file="solver.prototxt")
    source.param.net_param.CopyFrom(parse_net(net_text(case)).param)
    source.param.snapshot_after_train = False
    timed, found = Timed(), []
    with Solver(source.param, communicator=communicator) as solver:
        for layer in solver.net.layers:
            if layer.type == "EmbeddingBag":
                layer.forward, layer.backward = timed.around(layer.forward), timed.around(layer.backward)
        inputs = solver.net.layers[0].forward([])
        batches = batches_of(case)
        for number in range(_WARM_UP + rounds):
            dense, ids, label = batches[number % len(batches)]
            for blob, values in zip(inputs, (dense, label, *ids), strict=True):
                blob.copy_(values)
            timed.seconds = 0.0
            began, cpu_began = time.perf_counter(), time.process_time()
            solver.step(1)
            found.append((time.perf_counter() - began, time.process_time() - cpu_began, timed.seconds))
    whole, cpu, tables = (1e3 * statistics.median(values) for values in zip(*found[_WARM_UP:], strict=True))
    return whole, cpu, tables


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 300_000])
    parser.add_argument("--types", nargs="+", choices=TYPES, default=["SGD", "AdaGrad"])
    parser.add_argument("--batch", type=int, default=2048, help="of all ranks together")
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    torch.set_num_threads(1)
    communicator = connect()
    if communicator.rank == 0:
        print("| type | ranks | rows of each table | iteration | processor time | in tables |")
        print("|---|---|---|---|---|---|")
    for kind in options.types:
        for rows in options.rows:
            case = Case(kind, 26, rows, options.batch // communicator.size)
            whole, cpu, tables = measure(case, communicator, options.rounds)
            if communicator.rank == 0:
                size = communicator.size
                print(f"| {kind} | {size} | {rows:,} | {whole:.2f} ms | {cpu:.2f} ms | {tables:.2f} ms |", flush=True)


if __name__ == "__main__":
    main()
