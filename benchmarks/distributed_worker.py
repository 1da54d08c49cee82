"""One rank of `benchmarks/distributed.py`, on either side; started by it, not by hand.

    distributed_worker.py ours MODEL BATCH SIDE ROUNDS FILE        under mpirun: every schedule, and `auto`
    distributed_worker.py gradients MODEL BATCH SIDE ROUNDS FILE   the same without `exchange_products`
    distributed_worker.py ddp  MODEL BATCH SIDE ROUNDS FILE        with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT

Both sides train the same net on the same shapes: forward, backward, exchange of gradients, update with momentum and
weight decay. An iteration's seconds are those of the slowest rank. Rank 0 writes what was measured to FILE (JSON).
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch_models import CLASSES

RATE, MOMENTUM, DECAY = 1e-4, 0.9, 5e-4
LAST_KERNEL = 7
MAX_SEARCH_ITERATIONS = 600
"""Iterations after which `auto` must have found its plan."""


def batch_of(model: str, batch: int, side: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a rank's images and labels."""
    generator = torch.Generator().manual_seed(7 + rank)
    images = torch.randn((batch, 3, side, side), generator=generator)
    return images, torch.randint(CLASSES[model], (batch,), generator=generator)


class OurSide:
    """The engine's solver, given the plan to use from outside."""

    def __init__(self, model: str, batch: int, side: int, exchanges_products: bool = True) -> None:
        from mgcaffe.comm import connect
        from mgcaffe.solvers.events import IterationDone
        from mgcaffe.solvers.solver import Solver
        from mgcaffe.tools.running.steady_memory import lay_out

        self.decision: Any = None
        self.seen: list[tuple[float, Any]] = []
        self._iteration_done = IterationDone
        self.ranks = connect()
        param = solver_param(model, batch, side)
        param.comm_param.exchange_products = exchanges_products
        self.solver = Solver(param, communicator=self.ranks, listeners=[self], schedule="auto")
        lay_out(self.solver.net)
        images, labels = batch_of(model, batch, side, self.ranks.rank)
        for top, values in zip(self.solver.net.layers[0].forward([]), (images, labels), strict=True):
            top.copy_(values)

    def on_event(self, event: Any) -> None:
        """Catch what `auto` has decided, when backward passes began, and the last report of communication."""
        if getattr(event, "decision", None) is not None:
            self.decision = event.decision
            self.solver.request_stop()
        if isinstance(event, self._iteration_done):
            averaging = self.solver._averaging
            # By a plan that overlaps the forward pass, the iteration is still under way.
            iteration = averaging._synchronizer._iteration or averaging._report
            self.seen.append((iteration.began, averaging._report))

    def finish_search(self) -> int:
        """Train until `auto` has chosen; return how many iterations that took."""
        tuner = self.solver._averaging._tuner
        # Plans are changed from outside afterwards, which must not look like drift.
        tuner.settings = replace(tuner.settings, steps=replace(tuner.settings.steps, drift_watch=False))
        before = self.solver.iteration
        self.decision = None
        self.solver.step(MAX_SEARCH_ITERATIONS)
        if self.decision is None:
            raise SystemExit(f"auto has not found its plan after {MAX_SEARCH_ITERATIONS} iterations")
        return int(self.solver.iteration - before)

    def plans(self) -> dict[str, Any]:
        """Return every schedule's plan, predicted for what was measured; and the one that `auto` has chosen."""
        from mgcaffe.comm import make_plan, ready_times
        from mgcaffe.comm.planning.plan import Segment
        from mgcaffe.comm.planning.prediction import predict_plan
        from mgcaffe.comm.planning.schedules import SCHEDULES

        arena, decision = self.solver.net.arena, self.decision
        segments = [Segment(name, offset, count) for name, _, offset, count in arena.segments()]
        times, channel = decision.timings.backward_times, decision.channels[0]
        found = {}
        for schedule in SCHEDULES:
            plan = make_plan(
                schedule, segments, ready_times(times), channel.beside, element_bytes=arena.data.element_size()
            )
            found[schedule] = predict_plan(plan, times, decision.timings.tail, channel)
        found[f"auto ({decision.plan.schedule.partition(': ')[2]})"] = decision.plan
        return {name: self.ranks.broadcast_object(plan) for name, plan in found.items()}

    def iteration(self, plan: Any) -> tuple[float, float, float]:
        """Second of one iteration by a plan, of its backward pass, and of all its all-reduces together.

        By a plan that overlaps the forward pass, an iteration lasts from the start of its backward pass to that of
        the next one, by when all its groups have come, both on the rank that comes last: all ranks run on one machine,
        whose clock they share.
        """
        from mgcaffe.comm.tuning.calibration import agree_times

        averaging = self.solver._averaging
        averaging._synchronizer.set_plan(plan)
        self.ranks.barrier()
        self.seen.clear()
        start = time.perf_counter()
        if plan.overlaps_forward:
            self.solver.step(2)
            (first, _), (second, report) = self.seen
            first, second = agree_times(self.ranks, [first, second])
            seconds = second - first
        else:
            self.solver.step(1)
            seconds, report = time.perf_counter() - start, averaging._report
        return seconds, report.backward_end, report.total_s


def solver_param(model: str, batch: int, side: int) -> Any:
    """Return the model's train net on fixed inputs of this size, and a solver for it."""
    from step_worker import ROOT, is_auxiliary

    from mgcaffe.prototxt import LayerParameter, SolverParameter, read_net

    net = read_net(ROOT / "models" / model / "train_val.prototxt")
    layers = [layer for layer in net.layer if layer.type != "Data" and not is_auxiliary(layer.name)]
    for layer in layers:
        if layer.type == "Pooling" and layer.pooling_param.kernel_size == LAST_KERNEL:
            layer.pooling_param.Clear()
            layer.pooling_param.pool, layer.pooling_param.global_pooling = layer.pooling_param.AVE, True
    source = LayerParameter(name="data", type="Input", top=["data", "label"])
    source.input_param.shape.add().dim.extend((batch, 3, side, side))
    source.input_param.shape.add().dim.append(batch)
    del net.layer[:]
    net.layer.extend([source, *layers])
    param = SolverParameter(base_lr=RATE, lr_policy="fixed", momentum=MOMENTUM, weight_decay=DECAY)
    param.max_iter, param.random_seed, param.snapshot_after_train = 10**6, 1, False
    param.solver_mode = param.CPU
    param.net_param.CopyFrom(net)
    return param


def run_ours(model: str, batch: int, side: int, rounds: int, file: str, *, exchanges_products: bool = True) -> None:
    """Run all schedules in turn, round by round."""
    from mgcaffe.comm.tuning.calibration import agree_times

    ours = OurSide(model, batch, side, exchanges_products)
    search_iterations = ours.finish_search()
    plans = ours.plans()
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in plans}
    backward = ours.decision.timings.total
    for number in range(rounds):
        for name in list(plans) if number % 2 == 0 else list(plans)[::-1]:
            taken[name].append(ours.iteration(plans[name]))
    rows = []
    for name, plan in plans.items():
        values, backwards, busy = (agree_times(ours.ranks, column) for column in zip(*taken[name], strict=True))
        rows.append(
            {
                "schedule": name,
                "groups": len(plan.groups),
                "blocking": plan.blocking,
                "seconds": values,
                "predicted_exchange": plan.backward_end + plan.exposed,
                # Of the slowest rank: where a deviation from the prediction comes from.
                "backward": {"measured": statistics.median(backwards), "predicted": plan.backward_end},
                "all_reduces": {"measured": statistics.median(busy), "predicted": plan.busy},
            }
        )
    if ours.ranks.rank == 0:
        a, b, fit = ours.decision.costs.polled.affine()
        parameters = sum(parameter.count for parameter in ours.solver.net.parameters)
        found = {"rows": rows, "backward": backward, "search_iterations": search_iterations, "parameters": parameters}
        found["exchanged"] = ours.solver.net.arena.trainable_diff
        found["besides"] = ours.decision.timings.forward.total  # measured, since `auto` may overlap the forward pass
        found |= {"a": a, "b": b, "fit": fit, "slowdown": ours.decision.channels[0].slowdown}
        # What predictions rest on: an all-reduce's cost as it was measured alone, and as `auto` saw it in training.
        channel = ours.decision.channels[0]
        costs = {"measured": ours.decision.costs.polled, "beside": channel.beside, "alone": channel.alone}
        found["costs"] = {name: cost.to_json() for name, cost in costs.items()}
        found["trials"] = [
            {"label": trial.candidate.label, "predicted": trial.candidate.predicted, "seconds": trial.seconds}
            for trial in ours.decision.trials
        ]
        Path(file).write_text(json.dumps(found))
    ours.solver.close()


def run_ddp(model: str, batch: int, side: int, rounds: int, file: str) -> None:
    """PyTorch's DistributedDataParallel over gloo, its buckets as they come, in its faster memory format."""
    import torch.distributed as dist
    import torch_models

    pool = torch_models.average_pool

    def average_pool(x: torch.Tensor, kernel: int, stride: int, **options: Any) -> torch.Tensor:
        return x.mean((2, 3), keepdim=True) if kernel == LAST_KERNEL else pool(x, kernel, stride, **options)

    torch_models.average_pool = average_pool
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    net = torch_models.build(model).to(memory_format=torch.channels_last)
    images, labels = batch_of(model, batch, side, dist.get_rank())
    images = images.contiguous(memory_format=torch.channels_last)
    parallel = torch.nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)
    times = []
    for number in range(rounds + 2):
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(parallel(images), labels).backward()
        optimizer.step()
        if number >= 2:  # DDP puts its buckets into their final order in the first iterations
            times.append(time.perf_counter() - start)
    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    if dist.get_rank() == 0:
        Path(file).write_text(json.dumps({"seconds": slowest.tolist(), "median": statistics.median(slowest.tolist())}))
    dist.barrier()
    # gloo's threads now and then abort the process when the group is destroyed while they close their sockets.
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """Read the command line."""
    side, model, batch, size, rounds, file = sys.argv[1:7]
    if side != "ddp":
        from mgcaffe.tools.running.steady_memory import speed_up_training

        speed_up_training()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    arguments = model, int(batch), int(size), int(rounds), file
    if side == "ddp":
        run_ddp(*arguments)
    else:
        run_ours(*arguments, exchanges_products=side == "ours")


if __name__ == "__main__":
    main()
