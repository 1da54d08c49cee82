"""Gradients of depthwise filters against oneDNN's own: by groups of columns, with a dilation by the pixels of phases.

    OMP_NUM_THREADS=1 python benchmarks/depthwise.py
    OMP_NUM_THREADS=1 python benchmarks/depthwise.py --precision bf16

Medians in ms, the ways in turns, and their ratio (above 1: what the engine adds is faster); `rule` says whether the
rule takes columns, or phases, for the shape. In 16 bits the input's gradient is computed in float32 where there is a
stride, and the filters' where there is a dilation, since oneDNN's is wrong for most images.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch

from mgcaffe.engine.kernels import convolution_data, convolution_weight, depthwise, phases
from mgcaffe.engine.kernels.aten import convolution_backward
from mgcaffe.engine.kernels.choice.choices import Forced, add_rounded
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.tools.running.steady_memory import speed_up_training

SHAPES = [
    *((8, 672, 14, 5, 1), (8, 128, 28, 5, 1), (8, 240, 28, 5, 1), (8, 144, 56, 5, 2), (8, 96, 56, 7, 1)),
    *((8, 384, 14, 7, 1), (8, 768, 7, 7, 1), (8, 96, 56, 7, 2), (8, 72, 28, 4, 1), (8, 72, 28, 4, 2)),
    *((1, 672, 14, 5, 1), (1, 480, 4, 5, 1), (1, 72, 28, 5, 2), (8, 256, 28, 3, 2), (8, 64, 112, 3, 2)),
]
"""Images, channels, their height and width, the filters' height and width, and the stride."""
DILATED = [
    *((8, 672, 14, 5, 2), (8, 960, 14, 5, 2), (8, 128, 28, 3, 2), (8, 512, 14, 3, 2), (8, 728, 33, 3, 2)),
    *((8, 256, 33, 3, 4), (2, 1536, 33, 3, 4), (8, 64, 56, 7, 2), (1, 672, 14, 5, 2), (1, 960, 33, 3, 2)),
    *((1, 72, 28, 3, 2), (8, 8, 64, 3, 2), (1, 256, 33, 3, 6)),
]
"""Images, channels, their height and width, the filters' height and width, and the dilation."""
TYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
_LAST = torch.channels_last


def median_ms(ways: list[Callable[[], object]], rounds: int) -> list[float]:
    """Return the median times of some ways, in turns."""
    seconds: list[list[float]] = [[] for _ in ways]
    for number in range(rounds + 1):
        for way, spent in zip(ways, seconds, strict=True):
            start = time.perf_counter()
            way()
            if number:  # the first round does not count
                spent.append(time.perf_counter() - start)
    return [1000 * statistics.median(each) for each in seconds]


def row(shape: tuple[int, ...], dtype: torch.dtype, rounds: int) -> str:
    """Return a line of the table."""
    images, channels, size, kernel, stride = shape
    pad = (kernel - 1) // 2
    geometry = Geometry((kernel, kernel), (stride, stride), (pad, pad), (1, 1), channels)
    x = torch.randn(images, channels, size, size).to(dtype).contiguous(memory_format=_LAST)
    out = geometry.output_size((size, size))
    dy = torch.randn(images, channels, *out).to(dtype).contiguous(memory_format=_LAST)
    weight = torch.randn(channels, 1, kernel, kernel).to(dtype)
    total = torch.zeros_like(weight)
    filters = [
        lambda: convolution_backward(dy, x, weight, geometry, [False, True, False]),
        lambda: depthwise.add_backward_weight(total, 0.0, dy, x, geometry, None),
    ]
    own, columns = median_ms(filters, rounds)
    rule = "yes" if depthwise.suits(dy, x, geometry) else "no"
    text = f"| {' '.join(map(str, shape))} | {own:.2f} | {columns:.2f} | {own / columns:.2f} | {rule} |"
    if dtype == torch.float32:
        return text
    call = convolution_data.BackwardData(dy, weight, (size, size), geometry)
    ways = [convolution_data.BACKWARD_DATA.candidates[name] for name in ("aten", "widened")]
    own, widened = median_ms([partial(way.run, call) for way in ways], rounds)
    return f"{text} {own:.2f} | {widened:.2f} | {own / widened:.2f} |"


def dilated_row(shape: tuple[int, ...], dtype: torch.dtype, rounds: int) -> str:
    """Return a line of the table of filters with a dilation."""
    images, channels, size, kernel, dilation = shape
    pad = dilation * (kernel - 1) // 2
    geometry = Geometry((kernel, kernel), (1, 1), (pad, pad), (dilation, dilation), channels)
    x, dy = (torch.randn(images, channels, size, size).to(dtype).contiguous(memory_format=_LAST) for _ in range(2))
    weight, total = torch.randn(channels, 1, kernel, kernel).to(dtype), torch.zeros(channels, 1, kernel, kernel)
    of_filters = convolution_weight.BackwardWeight(total, 0.0, dy, x, geometry)
    of_input = convolution_data.BackwardData(dy, weight, (size, size), geometry)
    filters = [
        lambda: convolution_backward(dy, x, weight, geometry, [False, True, False]),
        lambda: add_rounded(Forced(phases.PHASES), convolution_weight.BACKWARD_WEIGHT, of_filters, dtype),
    ]
    ways = [convolution_data.BACKWARD_DATA.candidates[name] for name in ("aten", phases.PHASES)]
    text = f"| {' '.join(map(str, shape))} |"
    for pair in (filters, [partial(way.run, of_input) for way in ways]):
        own, by_phases = median_ms(pair, rounds)
        text += f" {own:.2f} | {by_phases:.2f} | {own / by_phases:.2f} |"
    return f"{text} {'yes' if phases.suits(dy, geometry) else 'no'} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=list(TYPES), default="float32", help="of x and dy (float32)")
    parser.add_argument("--rounds", type=int, default=11, help="turns of each way (11)")
    parser.add_argument("--threads", type=int, default=1, help="(1)")
    options = parser.parse_args()
    if min(options.rounds, options.threads) < 1:
        parser.error("--rounds and --threads have to be at least 1")
    speed_up_training()
    torch.set_num_threads(options.threads)
    dtype = TYPES[options.precision]
    columns = ["images, channels, size, filter, stride", "filters: oneDNN", "columns", "ratio", "rule"]
    columns += [] if dtype == torch.float32 else ["input: oneDNN", "in float32", "ratio"]
    of_dilated = ["images, channels, size, filter, dilation", "filters: oneDNN", "phases", "ratio"]
    of_dilated += ["input: oneDNN", "phases", "ratio", "rule"]
    for names, shapes, line in ((columns, SHAPES, row), (of_dilated, DILATED, dilated_row)):
        print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
        for shape in shapes:
            print(line(shape, dtype, options.rounds), flush=True)
        print()


if __name__ == "__main__":
    main()
