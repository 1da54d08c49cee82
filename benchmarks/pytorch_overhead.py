"""What `MergedGradientParallel` adds to a step of one rank, where nothing is exchanged.

    python benchmarks/pytorch_overhead.py [--rounds 30]

The deep perceptron of examples/pytorch (60 tensors) with batches of two sizes: one whose steps take about 20 ms, and
one so small that the hooks are much of a step. The plain module takes turns with modules that have more to do: one with
an empty hook on each parameter's node in autograd's graph, which is the least that any wrapper in Python needs; ours;
and DistributedDataParallel, without and with `gradient_as_bucket_view`. A turn is ten steps, of which the first, that
finds the caches filled by another side, does not count. Reported are the median of a plain turn's mean step, and for
each of the others the median of the differences to it within a round.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from pytorch_workloads import WIDTH, DeepMlp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgcaffe.pytorch import MergedGradientParallel
from mgcaffe.pytorch.autograd_graph import accumulator_of
from mgcaffe.tools.running.process import speed_up_memory

BATCHES = (4, 160)
_STEPS = 10


def stepper(model: nn.Module, inputs: torch.Tensor) -> Callable[[], None]:
    """Return a function that trains a module by one step."""
    updates = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        updates.zero_grad()
        model(inputs).square().mean().backward()
        updates.step()

    return step


def with_empty_hooks(module: nn.Module) -> nn.Module:
    """Return the module with hooks that do nothing."""
    nodes = [accumulator_of(parameter) for parameter in module.parameters()]
    for node in nodes:
        node.register_hook(lambda *_: None)
    module.kept_nodes = nodes  # type: ignore[assignment]
    return module


SIDES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "plain": lambda module: module,
    "empty hooks": with_empty_hooks,
    "ours": MergedGradientParallel,
    "DDP": DistributedDataParallel,
    "DDP with views": lambda module: DistributedDataParallel(module, gradient_as_bucket_view=True),
}


def measure(batch: int, rounds: int) -> dict[str, list[float]]:
    """Return the mean seconds of a step of each side's turns."""
    torch.manual_seed(0)
    module, inputs = DeepMlp(WIDTH), torch.randn(batch, WIDTH)
    sides = {name: stepper(wrap(copy.deepcopy(module)), inputs) for name, wrap in SIDES.items()}
    taken: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for number in range(1 + rounds):
        for name in names if number % 2 else reversed(names):
            sides[name]()
            began = time.perf_counter()
            for _ in range(_STEPS - 1):
                sides[name]()
            taken[name].append((time.perf_counter() - began) / (_STEPS - 1))
    return {name: times[1:] for name, times in taken.items()}


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    speed_up_memory()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    others = [name for name in SIDES if name != "plain"]
    print(f"| batch | plain, ms | {' | '.join(f'{name}, ms more' for name in others)} |")
    print((2 + len(others)) * "|---" + "|")
    for batch in BATCHES:
        taken = measure(batch, options.rounds)
        plain = statistics.median(taken["plain"])
        cells = []
        for name in others:
            more = statistics.median(a - b for a, b in zip(taken[name], taken["plain"], strict=True))
            cells.append(f"{1e3 * more:.3f} ({more / plain:.1%})")
        print(f"| {batch} | {1e3 * plain:.3f} | {' | '.join(cells)} |", flush=True)
    sys.stdout.flush()
    os._exit(0)  # DistributedDataParallel has no end of its own; its threads now and then abort the process


if __name__ == "__main__":
    main()
