"""Winograd's convolutions against the fastest of the other candidates, on shapes of five nets, and how much both round.

    OMP_NUM_THREADS=1 python benchmarks/winograd.py
    OMP_NUM_THREADS=1 python benchmarks/winograd.py --only alexnet --rounds 21

All candidates run in turns; reported is the least processor time of each. A cell says the ratio to the fastest of the
others (below 1: Winograd's is faster) and, behind it, the largest difference from the same in float64, in units of 1e-6
of the largest value. Images and weights are normally distributed; images, gradients and results are channels last.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from mgcaffe.engine.kernels.choice.operation import Operation
from mgcaffe.engine.kernels.convolution_data import BACKWARD_DATA, BackwardData
from mgcaffe.engine.kernels.convolution_forward import FORWARD, Forward
from mgcaffe.engine.kernels.convolution_weight import BACKWARD_WEIGHT, BackwardWeight
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.tools.running.process import speed_up_memory

# Batch, channels, outputs, pixels a side, rows of the filters, groups.
SHAPES = {
    "resnet50, stage 1": (8, 64, 64, 56, 3, 1),
    "resnet50, stage 2": (8, 128, 128, 28, 3, 1),
    "resnet50, stage 3": (8, 256, 256, 14, 3, 1),
    "resnet50, stage 4": (8, 512, 512, 7, 3, 1),
    "googlenet, conv2": (8, 64, 192, 56, 3, 1),
    "googlenet, 3b": (8, 128, 192, 28, 3, 1),
    "googlenet, 3b, 5x5": (8, 32, 96, 28, 5, 1),
    "googlenet, 4e": (8, 160, 320, 14, 3, 1),
    "googlenet, 5b": (8, 192, 384, 7, 3, 1),
    "alexnet, conv2": (16, 96, 256, 27, 5, 2),
    "alexnet, conv3": (16, 256, 384, 13, 3, 1),
    "alexnet, conv4": (16, 384, 384, 13, 3, 2),
    "alexnet, conv5": (16, 384, 256, 13, 3, 2),
    "cifar10_quick, conv1": (100, 3, 32, 32, 5, 1),
    "cifar10_quick, conv2": (100, 32, 32, 16, 5, 1),
    "cifar10_quick, conv3": (100, 32, 64, 8, 5, 1),
}


def calls(shape: tuple[int, ...], dtype: torch.dtype) -> list[tuple[Operation, Any]]:
    """Return the three directions' calls; the same numbers in each type."""
    batch, channels, outputs, side, rows, groups = shape
    generator = torch.Generator().manual_seed(1)

    def random(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator)

    x, dy = (random(batch, count, side, side).to(dtype) for count in (channels, outputs))
    weight = random(outputs, channels // groups, rows, rows).to(dtype)
    x, dy = (each.contiguous(memory_format=torch.channels_last) for each in (x, dy))
    geometry = Geometry((rows, rows), (1, 1), (rows // 2, rows // 2), (1, 1), groups)
    return [
        (FORWARD, Forward(x, weight, None, geometry, False)),
        (BACKWARD_DATA, BackwardData(dy, weight, (side, side), geometry)),
        (BACKWARD_WEIGHT, BackwardWeight(torch.empty_like(weight), 0.0, dy, x, geometry)),
    ]


def result(operation: Operation, name: str, call: Any) -> torch.Tensor:
    """Return what a candidate computes."""
    computed = operation.candidates[name].run(call)
    return call.total.clone() if operation.accumulates else computed


def compare(operation: Operation, call: Any, exact: torch.Tensor, rounds: int) -> dict[str, tuple[float, float]]:
    """Return the seconds of each candidate, and its largest difference relative to the largest value."""
    names = [each.name for each in operation.serving(call) if not each.name.startswith("positions")]
    seconds = dict.fromkeys(names, float("inf"))
    errors = {name: float((result(operation, name, call) - exact).abs().max() / exact.abs().max()) for name in names}
    for number in range(rounds):
        for name in names[:: -1 if number % 2 else 1]:
            began = time.process_time()
            operation.candidates[name].run(call)
            seconds[name] = min(seconds[name], time.process_time() - began)
    return {name: (seconds[name], errors[name]) for name in names}


def cells(found: dict[str, tuple[float, float]]) -> list[str]:
    """Return the best other candidate's time and rounding, and each of Winograd's ratio and rounding."""
    others = {name: each for name, each in found.items() if "winograd" not in name}
    best = min(others, key=lambda name: others[name][0])
    least, error = found[best]
    mine = [
        f"{name.removeprefix('winograd_f')}: **{seconds / least:.2f}** ({1e6 * rounded:.1f})"
        for name, (seconds, rounded) in found.items()
        if "winograd" in name
    ]
    return [f"{best} {1e3 * least:.1f} ({1e6 * error:.1f})", ", ".join(mine)]


def main() -> None:
    """Read the command line and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the shapes in whose name this stands")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    speed_up_memory()
    torch.set_num_threads(options.threads)
    print("| layer | direction | fastest other, ms (1e-6) | F(m, r): ratio (1e-6) |\n|---|---|---|---|")
    for name, shape in SHAPES.items():
        if options.only in name:
            exact = calls(shape, torch.float64)
            for (operation, call), (_, double) in zip(calls(shape, torch.float32), exact, strict=True):
                found = compare(operation, call, result(operation, "aten", double), options.rounds)
                direction = operation.name.removeprefix("convolution ")
                print(f"| {name} | {direction} | {' | '.join(cells(found))} |", flush=True)


if __name__ == "__main__":
    main()
