"""One rank of `benchmarks/pytorch.py`; started by it, not by hand.

    pytorch_worker.py SETTINGS FILE           SETTINGS: `pytorch.Settings` as JSON; rank 0 writes FILE (JSON)

All systems are in this process, each with a copy of the module and an optimizer of its own: DDP with several bucket
sizes, `MergedGradientParallel` with the schedule `auto`, and the latter inside `no_sync`, which exchanges nothing.
First `auto` finds its plan. Then all systems take turns of some steps, round by round, in alternating order; a barrier
and a step that doesn't count come before each turn.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed as dist
from pytorch_workloads import Workload, build
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgcaffe.comm.planning.forward_overlap import predict
from mgcaffe.comm.planning.plan import Plan, Segment
from mgcaffe.comm.planning.schedules import predict_groups
from mgcaffe.pytorch import MergedGradientParallel
from mgcaffe.solvers.events import Event, PlanChosen
from mgcaffe.tools.running.process import speed_up_memory

ALONE = "none"
AUTO = "auto"
DEFAULT = "default"
_MIB = 2**20
_MAX_SEARCH = 2000
_MIN_STEPS = 2


class System:
    """A module in a wrapper, with its optimizer.

    Args:
        workload: what it trains; the module is copied.
        name: `auto`, `default`, or a bucket size in MiB.
        calibration: `auto`'s calibration iterations.
    """

    def __init__(self, workload: Workload, name: str, calibration: int) -> None:
        self._workload = workload
        self.chosen: PlanChosen | None = None
        module = copy.deepcopy(workload.module)
        self.model: nn.Module
        if name == AUTO:
            self.model = MergedGradientParallel(module, listener=self._listen, calibration_iterations=calibration)
        else:
            self.model = DistributedDataParallel(module, bucket_cap_mb=None if name == DEFAULT else int(name))
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def step(self) -> None:
        """Train by a batch."""
        self._optimizer.zero_grad()
        self._workload.loss(self.model).backward()
        self._optimizer.step()

    def _listen(self, event: Event) -> None:
        if isinstance(event, PlanChosen):
            self.chosen = event


class Alone:
    """Another system without its communication."""

    def __init__(self, other: System) -> None:
        self._other = other

    def step(self) -> None:
        """Train by a batch, with this rank's own gradients."""
        model: Any = self._other.model
        with model.no_sync():
            self._other.step()


def without_equals(names: Sequence[str], size: int) -> list[str]:
    """Return the systems without bucket sizes that hold a whole module of so many bytes, as a smaller one does."""
    full = sorted(int(name) for name in names if name.isdigit() and int(name) * _MIB >= size)
    return [name for name in names if not (name.isdigit() and int(name) in full[1:])]


def slowest(value: float) -> float:
    """Return the largest value of any rank."""
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return float(tensor)


def search(system: System) -> dict[str, float]:
    """Train until the plan is found; return what that took."""
    began, count = time.perf_counter(), 0
    while system.chosen is None:
        system.step()
        count += 1
        if count > _MAX_SEARCH:
            raise SystemExit(f"no plan was found in {count} steps")
    return {"iterations": count, "seconds": time.perf_counter() - began}


def take_turn(system: System | Alone, seconds: float, at_least: int = _MIN_STEPS) -> float:
    """Return the mean seconds of a step, on the slowest rank, over so many steps as fill some seconds; collective."""
    dist.barrier()
    began = time.perf_counter()
    system.step()
    count = max(at_least, round(seconds / slowest(time.perf_counter() - began)))
    dist.barrier()
    began = time.perf_counter()
    for _ in range(count):
        system.step()
    return slowest((time.perf_counter() - began) / count)


def bucket_plan(segments: Sequence[Segment], limits: Sequence[int], ready: Sequence[float], cost: Any) -> Plan:
    """Return the groups that DDP makes of gradients which become ready from the last segment to the first."""
    tensors = [torch.empty(segment.count, device="meta") for segment in reversed(segments)]
    buckets, _ = dist._compute_bucket_assignment_by_size(tensors, list(limits))
    last = len(segments) - 1
    ranges = [(last - bucket[-1], last - bucket[0]) for bucket in buckets]
    return Plan("ddp", len(segments), predict_groups(ranges, segments, ready, cost, 4), 0.0)


def limits_of(name: str) -> list[int]:
    """Return DDP's limits in bytes, of the first bucket and of those that follow."""
    if name == DEFAULT:
        return [dist._DEFAULT_FIRST_BUCKET_BYTES, 25 * _MIB]
    return [int(name) * _MIB]


def predictions(chosen: PlanChosen, text: str, systems: Sequence[str]) -> dict[str, Any]:
    """Return what the measurements of `auto` say of each system: the end of communication, and the number of groups.

    Args:
        chosen: the plan and what it rests on.
        text: the same as a plan file.
        systems: their names.
    """
    decision = chosen.decision
    assert decision is not None
    segments, offset = [], 0
    for layer in json.loads(text)["layers"]:
        segments.append(Segment(layer["name"], offset, layer["elements"]))
        offset += layer["elements"]
    channel, timings = decision.channels[0], decision.timings
    ready = numpy.cumsum(timings.backward_times[::-1])[::-1].tolist()
    plans = {AUTO: decision.plan}
    for name in systems:
        if name not in (AUTO, ALONE):
            plans[name] = predict(bucket_plan(segments, limits_of(name), ready, channel.beside), timings, channel)
    curve = [(size, decision.costs.busy_polled(size)) for size in (4096, 65536, _MIB, 4 * offset)]
    return {
        "backward_s": timings.total,
        "slowdown": channel.slowdown,
        "costs": curve,
        "schedule": chosen.plan.schedule,
        "end_s": {name: max(plan.end, plan.backward_end) for name, plan in plans.items()},
        "groups": {name: len(plan.groups) for name, plan in plans.items()},
    }


def main() -> None:
    """Read the command line, run all systems in turn, and write what was measured."""
    settings, file = json.loads(sys.argv[1]), Path(sys.argv[2])
    speed_up_memory()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    workload = build(settings["model"], seed=1 + rank)
    parameters = list(workload.module.parameters())
    names = without_equals(settings["systems"], 4 * sum(each.numel() for each in parameters))
    systems: dict[str, System | Alone] = {}
    for name in names:
        if name != ALONE:
            systems[name] = System(workload, name, settings["calibration"])
    auto: Any = systems[AUTO]
    systems[ALONE] = Alone(auto)
    found = search(auto)
    auto.model.write_plan(plan_file := file.with_suffix(f".plan{rank}"))
    for name in names:
        for _ in range(_MIN_STEPS):  # DDP makes its buckets anew after the first
            systems[name].step()
    result: dict[str, Any] = {"search": found, "turns": {name: [] for name in names}}
    result |= {"tensors": len(parameters), "bytes": 4 * sum(each.numel() for each in parameters)}
    if rank == 0:
        result |= predictions(auto.chosen, plan_file.read_text(), names)
        print(f"{settings['model']}: {result}", file=sys.stderr, flush=True)
    for number in range(settings["rounds"]):
        for name in names if number % 2 == 0 else names[::-1]:
            result["turns"][name].append(take_turn(systems[name], settings["seconds"]))
        if rank == 0:
            turns = ", ".join(f"{name} {1e3 * result['turns'][name][-1]:.1f}" for name in names)
            print(f"round {number + 1}, ms: {turns}", file=sys.stderr, flush=True)
    if rank == 0:
        file.write_text(json.dumps(result))
    dist.barrier()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    # gloo's threads now and then abort the process when a group is destroyed while they close their sockets.
    os._exit(0)


if __name__ == "__main__":
    main()
