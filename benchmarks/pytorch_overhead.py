"""What `MergedGradientParallel` adds to a step of one rank, where nothing is exchanged.

    python benchmarks/pytorch_overhead.py [--rounds 100]

The deep perceptron of examples/pytorch (60 tensors) with batches of two sizes: one whose steps take about 20 ms, and
one so small that the hooks are much of a step. The plain module and the wrapped one take turns, step by step; reported
are the median time of a step of each, and the median of the differences within a turn.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
from pytorch_workloads import WIDTH, DeepMlp
from torch import nn

from mgcaffe.pytorch import MergedGradientParallel
from mgcaffe.tools.running.process import speed_up_memory

BATCHES = (4, 160)
_WARM_UP = 5


def stepper(model: nn.Module, inputs: torch.Tensor) -> Callable[[], None]:
    """Return a function that trains a module by one step."""
    updates = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step() -> None:
        updates.zero_grad()
        model(inputs).square().mean().backward()
        updates.step()

    return step


def measure(batch: int, rounds: int) -> tuple[float, float, float]:
    """Return the median seconds of a plain step, of a wrapped one, and of their difference."""
    torch.manual_seed(0)
    module, inputs = DeepMlp(WIDTH), torch.randn(batch, WIDTH)
    wrapped = stepper(MergedGradientParallel(copy.deepcopy(module)), inputs)
    plain = stepper(module, inputs)
    taken: dict[Callable[[], None], list[float]] = {plain: [], wrapped: []}
    for number in range(_WARM_UP + rounds):
        for step in (plain, wrapped) if number % 2 else (wrapped, plain):
            began = time.perf_counter()
            step()
            taken[step].append(time.perf_counter() - began)
    pairs = list(zip(taken[plain], taken[wrapped], strict=True))[_WARM_UP:]
    return (
        statistics.median(one for one, _ in pairs),
        statistics.median(other for _, other in pairs),
        statistics.median(other - one for one, other in pairs),
    )


def main() -> None:
    """Read the command line and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    speed_up_memory()
    torch.set_num_threads(1)
    print("| batch | plain, ms | wrapped, ms | difference, ms | of a step |\n|---|---|---|---|---|")
    for batch in BATCHES:
        plain, wrapped, added = measure(batch, options.rounds)
        cells = (f"{1e3 * value:.3f}" for value in (plain, wrapped, added))
        print(f"| {batch} | {' | '.join(cells)} | {added / plain:.2%} |", flush=True)


if __name__ == "__main__":
    main()
