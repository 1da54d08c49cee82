"""What `MergedGradientParallel` adds to a step of one rank, where nothing is exchanged.

    python benchmarks/pytorch_overhead.py [--rounds 30] [--batches 4 160] [--sides ours ...]

The deep perceptron of examples/pytorch (60 tensors) with batches of two sizes: one whose steps take about 20 ms, and
one so small that the hooks are much of a step. The plain module takes turns with wrappers that have more to do: an
empty hook on each parameter's node in autograd's graph, which is the least that any wrapper needs whose hooks are in
Python; ours; and DistributedDataParallel, without and with `gradient_as_bucket_view`. All of them wrap one and the same
module, for a turn: copies lie elsewhere in memory, which alone makes steps of some milliseconds differ by several per
cent. Of a turn's eleven steps the first two do not count: caches are filled by another side then, and
DistributedDataParallel makes its buckets anew. Reported are the median of a plain turn's mean step, and for each of the
others the median of the differences to it within a round, +- the standard error of their mean.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from pytorch_workloads import WIDTH, DeepMlp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from mgcaffe.pytorch import MergedGradientParallel
from mgcaffe.pytorch.autograd_graph import accumulator_of
from mgcaffe.tools.running.process import speed_up_memory

PLAIN = "plain"
BATCHES = (4, 160)
_STEPS = 9
_UNCOUNTED = 2


def stepper(model: nn.Module, inputs: torch.Tensor) -> Callable[[], None]:
    """Return a function that trains a module by one step."""
    updates = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        updates.zero_grad()
        model(inputs).square().mean().backward()
        updates.step()

    return step


def with_empty_hooks(module: nn.Module) -> tuple[nn.Module, object]:
    """Return the module, and what keeps hooks that do nothing."""
    nodes = [accumulator_of(parameter) for parameter in module.parameters()]
    for node in nodes:
        node.register_hook(lambda *_: None)
    return module, nodes


SIDES: dict[str, Callable[[nn.Module], tuple[nn.Module, object]]] = {
    PLAIN: lambda module: (module, None),
    "empty hooks": with_empty_hooks,
    "ours": lambda module: (MergedGradientParallel(module), None),
    "DDP": lambda module: (DistributedDataParallel(module), None),
    "DDP with views": lambda module: (DistributedDataParallel(module, gradient_as_bucket_view=True), None),
}


def take_turn(name: str, module: nn.Module, inputs: torch.Tensor) -> float:
    """Return the mean seconds of a side's step; its hooks are gone afterwards."""
    model, kept = SIDES[name](module)
    step = stepper(model, inputs)
    for _ in range(_UNCOUNTED):
        step()
    began = time.perf_counter()
    for _ in range(_STEPS):
        step()
    took = (time.perf_counter() - began) / _STEPS
    del model, step, kept
    module.zero_grad()
    gc.collect()
    return took


def measure(batch: int, rounds: int, names: Sequence[str]) -> dict[str, list[float]]:
    """Return the mean seconds of a step of each side's turns."""
    torch.manual_seed(0)
    module, inputs = DeepMlp(WIDTH), torch.randn(batch, WIDTH)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for number in range(1 + rounds):
        for name in names if number % 2 else names[::-1]:
            taken[name].append(take_turn(name, module, inputs))
    return {name: times[1:] for name, times in taken.items()}


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--sides", nargs="+", choices=[name for name in SIDES if name != PLAIN], metavar="SIDE")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds: at least 2, of which the spread is computed")
    speed_up_memory()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    others = [name for name in SIDES if name != PLAIN and name in (options.sides or SIDES)]
    print(f"| batch | plain, ms | {' | '.join(f'{name}, ms more' for name in others)} |")
    print((2 + len(others)) * "|---" + "|")
    for batch in options.batches:
        taken = measure(batch, options.rounds, [PLAIN, *others])
        plain = statistics.median(taken[PLAIN])
        cells = []
        for name in others:
            differences = [a - b for a, b in zip(taken[name], taken[PLAIN], strict=True)]
            more, error = statistics.median(differences), statistics.stdev(differences) / len(differences) ** 0.5
            cells.append(f"{1e3 * more:.3f} +- {1e3 * error:.3f} ({more / plain:.1%} +- {error / plain:.1%})")
        print(f"| {batch} | {1e3 * plain:.3f} | {' | '.join(cells)} |", flush=True)
    sys.stdout.flush()
    os._exit(0)  # DistributedDataParallel has no end of its own; its threads now and then abort the process


if __name__ == "__main__":
    main()
