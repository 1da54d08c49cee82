"""What communication in the background costs the computation beside it: a measurement to run under mpirun.

    mpirun --bind-to none -n 2 python benchmarks/contention.py

It prints three tables: what one all-reduce costs by size; how long an iteration of 30 layers takes whose
gradients (18 MB in all) are reduced beside it, for the ways in which the reducer's thread may wait; and what the
schedule `auto` makes of the same iteration. All sides are interleaved, and the median counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import pairwise

import numpy

from mgcaffe.comm.exchange.merged_all_reduce import MergedAllReduce
from mgcaffe.comm.exchange.synchronizer import NoSynchronizer, Synchronizer
from mgcaffe.comm.planning.cost import AffineCost
from mgcaffe.comm.planning.plan import Segment, ready_times
from mgcaffe.comm.planning.schedules import make_plan
from mgcaffe.comm.transport.communicator import Communicator, Waiting
from mgcaffe.comm.transport.connect import connect
from mgcaffe.comm.tuning.calibration import measure_allreduce_costs
from mgcaffe.comm.tuning.decision import Decision
from mgcaffe.comm.tuning.settings import AUTO, TunerSettings
from mgcaffe.comm.tuning.tuner import Tuner

WAYS = {
    "blocking": Waiting(blocking=True),
    "polled every 0.2 ms": Waiting(max_sleep_s=0.0),
    "polled every 1 ms": Waiting(sleep_s=1e-3),
}

_COST_ROUNDS, _ITERATION_ROUNDS = 5, 15
_LAYERS = 30
_LAYER_ELEMENTS = 150_000
_LAYER_S = 3e-3
_BUCKETS = {"30 groups": 0.0, "4 groups": 5e6, "1 group, after backward": 1e9}


def time_allreduces(ranks: Communicator, way: Communicator, size: int, samples: int) -> float:
    """Return the median seconds of an all-reduce of `size` bytes of float32."""
    buffer = numpy.zeros(size // 4, dtype=numpy.float32)
    times = []
    ranks.barrier()
    for _ in range(samples):
        began = time.perf_counter()
        way.allreduce(buffer)
        times.append(time.perf_counter() - began)
    return float(numpy.median(times))


def make_layer() -> Callable[[], None]:
    """Return a function that computes for about `_LAYER_S` seconds with one core to itself."""
    left = numpy.ones((192, 192), dtype=numpy.float32)
    product = numpy.empty_like(left)
    seconds = []
    for _ in range(200):
        began = time.perf_counter()
        numpy.matmul(left, left, out=product)
        seconds.append(time.perf_counter() - began)
    repetitions = max(1, round(_LAYER_S / min(seconds)))

    def layer() -> None:
        for _ in range(repetitions):
            numpy.matmul(left, left, out=product)

    return layer


def time_iteration(ranks: Communicator, sync: Synchronizer, layer: Callable[[], None]) -> tuple[float, float]:
    """Return the seconds of one backward pass with its communication, and those of the pass alone."""
    ranks.barrier()
    began = time.perf_counter()
    sync.begin_iteration()
    for index in reversed(range(_LAYERS)):
        layer()
        sync.gradients_ready(index)
    computed = time.perf_counter() - began
    sync.wait()
    return time.perf_counter() - began, computed


def _print_costs(ranks: Communicator) -> None:
    ways = {name: ranks.duplicate(waiting) for name, waiting in WAYS.items()}
    ways["busy polling"] = ranks.duplicate()
    ways["busy polling"].set_busy_polling(True)
    _print(ranks, f"{'bytes':>10}" + "".join(f"{name:>22}" for name in ways) + "   (us)")
    for size in (1 << shift for shift in range(10, 27, 2)):
        medians = [
            [time_allreduces(ranks, way, size, 15 if size < 1 << 22 else 3) for way in ways.values()]
            for _ in range(_COST_ROUNDS)
        ]
        _print(ranks, f"{size:>10}" + "".join(f"{best * 1e6:>22.1f}" for best in numpy.min(medians, axis=0)))


def _print_iterations(ranks: Communicator) -> None:
    flat = numpy.zeros(_LAYERS * _LAYER_ELEMENTS, dtype=numpy.float32)
    segments = [Segment(f"layer {i}", i * _LAYER_ELEMENTS, _LAYER_ELEMENTS) for i in range(_LAYERS)]
    layer = make_layer()
    sides: dict[str, Synchronizer] = {"no communication": NoSynchronizer()}
    for grouping, bucket_bytes in _BUCKETS.items():
        for name, waiting in WAYS.items():
            plan = make_plan(
                "threshold",
                segments,
                ready_times([_LAYER_S] * _LAYERS),
                AffineCost(0.0, 0.0),
                element_bytes=4,
                bucket_bytes=bucket_bytes,
            )
            sides[f"{grouping}, {name}"] = sync = MergedAllReduce(ranks, plan, waiting=waiting)
            sync.start(flat, segments)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(_ITERATION_ROUNDS):
        for name, side in sides.items():
            times[name].append(time_iteration(ranks, side, layer))
    _print(ranks, f"\n{'':<45}{'iteration':>12}{'backward':>12}   (ms)")
    for name, pairs in times.items():
        total, computed = numpy.median(pairs, axis=0) * 1e3
        _print(ranks, f"{name:<45}{total:>12.1f}{computed:>12.1f}")
    for side in sides.values():
        side.close()


class _Auto:
    """Lets `auto` measure, plan and try; keeps its decision."""

    decision: Decision | None = None

    def __init__(self, ranks: Communicator) -> None:
        segments = [Segment(f"layer {i}", i * _LAYER_ELEMENTS, _LAYER_ELEMENTS) for i in range(_LAYERS)]
        flat = numpy.zeros(_LAYERS * _LAYER_ELEMENTS, dtype=numpy.float32)
        sync = MergedAllReduce(ranks)
        sync.start(flat, segments)
        settings = TunerSettings(AUTO, element_bytes=4, calibration_iterations=20)
        tuner = Tuner(ranks, sync, segments, settings, lambda _: measure_allreduce_costs(ranks, flat), self)
        tuner.search()
        layer = make_layer()
        while tuner.is_searching:
            ranks.barrier()
            sync.begin_iteration()
            marks = [time.perf_counter()]
            for index in reversed(range(_LAYERS)):
                layer()
                marks.append(time.perf_counter())
                sync.gradients_ready(index)
            marks.append(time.perf_counter())
            report = sync.wait()
            marks.append(time.perf_counter())
            tuner.iteration_done([after - before for before, after in pairwise(marks)], report)
        sync.close()

    def plan_decided(self, decision: Decision) -> None:
        """Keep it."""
        self.decision = decision

    def plan_outdated(self, exposed: float, expected: float) -> None:
        """Cannot happen: no drift is watched for in so short a run."""


def _print_auto(ranks: Communicator) -> None:
    decision = _Auto(ranks).decision
    assert decision is not None
    _print(
        ranks,
        f"\n{'auto (the chosen plan first)':<33}{'groups':>8}{'calls':>10}{'predicted':>12}{'measured':>12}   (ms)",
    )
    for trial in decision.trials:
        plan = trial.candidate.plan
        calls = "blocking" if plan.blocking else "polled"
        times = f"{trial.candidate.predicted * 1e3:>12.1f}{trial.median * 1e3:>12.1f}"
        _print(ranks, f"{trial.candidate.label:<33}{len(plan.groups):>8}{calls:>10}{times}")
    for channel in decision.channels:
        calls = "blocking" if channel.blocking else "polled"
        _print(ranks, f"a second of {calls} calls beside the backward pass adds {channel.slowdown:.2f} s to it")


def _print(ranks: Communicator, line: str) -> None:
    if ranks.rank == 0:
        print(line, flush=True)


def main() -> None:
    """Print the tables."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    ranks = connect()
    _print_costs(ranks)
    _print_iterations(ranks)
    _print_auto(ranks)


if __name__ == "__main__":
    main()
