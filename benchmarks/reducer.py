"""The reducer's choices, measured: how its thread waits, when the ranks agree on the loss, what 16 bits cost.

    mpirun --bind-to none -n 2 python benchmarks/reducer.py

Each table's sides run in turns, and medians over rounds count. A backward pass of 12 layers is computed (matrix
products, 3 ms each with a core to itself), 2 MB of gradients a layer are reduced beside it, and a small all-reduce
follows, as the solver's on the loss. One thread computes on each rank: set OMP_NUM_THREADS=1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy
from contention import make_layer

from mgcaffe.comm.exchange.merged_all_reduce import MergedAllReduce
from mgcaffe.comm.exchange.sums.base import TransferSettings
from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.planning.plan import Plan, Segment, ready_times
from mgcaffe.comm.planning.schedules import make_plan
from mgcaffe.comm.transport.communicator import Communicator, Waiting
from mgcaffe.comm.transport.connect import connect

LAYERS, ELEMENTS, ROUNDS = 12, 500_000, 21
SEGMENTS = [Segment(f"layer {index}", index * ELEMENTS, ELEMENTS) for index in range(LAYERS)]
GROUPS = {"12 groups": 0.0, "3 groups": 8e6, "1 group": 1e9}
WAYS = {"polled": Waiting(), "polled every 1 ms": Waiting(sleep_s=1e-3), "blocking": Waiting(blocking=True)}


def plan_of(bucket_bytes: float) -> Plan:
    """Group of at least so many bytes."""
    times = ready_times([3e-3] * LAYERS)
    free = AffineCost(0.0, 0.0)
    return make_plan("threshold", SEGMENTS, times, free, element_bytes=4, bucket_bytes=bucket_bytes)


def side(
    ranks: Communicator,
    layer: Callable[[], None],
    plan: Plan,
    *,
    waiting: Waiting | None = None,
    transfer: TransferSettings | None = None,
    agrees: str = "infrequently",
) -> Callable[[], float]:
    """Return a function that runs one iteration and returns its seconds."""
    sync = MergedAllReduce(ranks, plan, waiting=waiting or Waiting(), transfer=transfer)
    sync.start(numpy.ones(LAYERS * ELEMENTS, dtype=numpy.float32), SEGMENTS)
    loss = numpy.zeros(4)

    def iteration() -> float:
        ranks.barrier()
        began = time.perf_counter()
        sync.begin_iteration()
        for index in reversed(range(LAYERS)):
            layer()
            sync.gradients_ready(index)
        if agrees == "infrequently":
            sync.backward_done()
        if agrees != "afterwards":
            ranks.allreduce(loss)
        sync.wait()
        if agrees == "afterwards":
            ranks.allreduce(loss)
        return time.perf_counter() - began

    return iteration


def compare(ranks: Communicator, title: str, sides: dict[str, Callable[[], float]]) -> None:
    """Print the sides' medians and quartiles, of the slowest rank, in milliseconds."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, iteration in sides.items():
            slowest = numpy.array([iteration()])
            ranks.allreduce(slowest, "max")
            times[name].append(float(slowest[0]) * 1e3)
    if ranks.rank == 0:
        print(f"\n{title}, ms per iteration\n\n| side | median | quartiles |\n|---|---|---|")
        for name, values in times.items():
            low, middle, high = statistics.quantiles(values, n=4)
            print(f"| {name} | {middle:.1f} | {low:.1f} to {high:.1f} |", flush=True)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    ranks = connect()
    if ranks.size == 1:
        parser.error("one rank reduces nothing: start it with mpirun -n 2")
    layer = make_layer()
    plans = {name: plan_of(size) for name, size in GROUPS.items()}
    compare(
        ranks,
        "How the reducer's thread waits",
        {
            f"{groups}, {way}": side(ranks, layer, plan, waiting=waiting)
            for groups, plan in plans.items()
            for way, waiting in WAYS.items()
        },
    )
    compare(
        ranks,
        "When the ranks agree on the loss",
        {
            f"{groups}, {when}": side(ranks, layer, plans[groups], agrees=when)
            for groups in ("12 groups", "1 group")
            for when in ("afterwards", "eagerly", "infrequently")
        },
    )
    compare(
        ranks,
        "The type that gradients travel in",
        {
            f"{groups}, {kind}": side(ranks, layer, plans[groups], transfer=TransferSettings(kind))
            for groups in ("3 groups", "1 group")
            for kind in ("float32", "float16", "bfloat16")
        },
    )


if __name__ == "__main__":
    main()
