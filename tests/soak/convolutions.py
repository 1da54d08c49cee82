"""Convolutions drawn at random, by every candidate: results and gradients are those in float64 (`engine/kernels`).

Images, rows and volumes, with strides, dilations, groups and any padding, in float32 and in bf16 from the same rounded
operands. oneDNN computes some gradients wrong, or writes beyond its memory, so cases run in a process of their own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context

import torch

from mgcaffe.engine.kernels.choice.choices import RULES, add_rounded, compute
from mgcaffe.engine.kernels.choice.operation import Operation
from mgcaffe.engine.kernels.convolution_data import BACKWARD_DATA, BackwardData
from mgcaffe.engine.kernels.convolution_forward import FORWARD, Forward
from mgcaffe.engine.kernels.convolution_weight import BACKWARD_WEIGHT, BackwardWeight
from mgcaffe.engine.kernels.geometry import Geometry
from mgcaffe.engine.kernels.precision import needs_float32
from tests.soak import Row, count

NAME = "convolutions"
CASES = 3000
_AT_A_TIME = 25
_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
_LARGEST = {1: 200, 2: 70, 3: 14}
_FORMATS = {2: [torch.channels_last, torch.channels_last, torch.contiguous_format]}


def run(full: bool) -> list[Row]:
    """Compute all cases, a twentieth of them if not in full."""
    cases = CASES if full else CASES // 20
    groups = [range(first, min(first + _AT_A_TIME, cases)) for first in range(0, cases, _AT_A_TIME)]
    process = _Process()
    row = count("random convolutions, every candidate equals float64", [
        (f"seeds {seeds.start} to {seeds.stop - 1}", partial(process.outcome, seeds)) for seeds in groups
    ])  # fmt: skip
    process.end()
    row.cases = cases
    return [row]


class _Process:
    """Computes in a process of its own, and in another one where that has ended."""

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, get_context("spawn"))

    def outcome(self, seeds: range) -> str | None:
        """Return what differs, or None."""
        try:
            return "; ".join(self._pool.submit(problems, seeds).result()) or None
        except BrokenProcessPool:
            self._pool = ProcessPoolExecutor(1, get_context("spawn"))
            return "the process ended"

    def end(self) -> None:
        """End the process."""
        self._pool.shutdown()


def problems(seeds: range) -> list[str]:
    """Return what differs, a line for each candidate and case."""
    torch.set_num_threads(1)
    return [f"seed {seed}: {problem}" for seed in seeds for problem in _problems(random.Random(seed), seed)]


def drawn(draw: random.Random) -> tuple[Geometry, tuple[int, ...], int, int]:
    """Return filters' walk, the image's size, its channels and the filters' number."""
    while True:
        rank = draw.choice([1, 2, 2, 2, 2, 3])
        kind = draw.choice(["depthwise", "depthwise", "dense", "groups", "more filters"])
        groups = draw.choice({"depthwise": [2, 3, 8, 16, 17, 32], "dense": [1]}.get(kind, [2, 4, 8]))
        channels = groups * (1 if kind in ("depthwise", "more filters") else draw.choice([1, 3, 4, 8]))
        outputs = channels if kind == "depthwise" else groups * draw.choice([1, 2, 3, 8])
        size = tuple(draw.choice([draw.randint(1, _LARGEST[rank]), draw.randint(1, 9)]) for _ in range(rank))
        alike = draw.random() < 0.6
        kernel, stride, dilation = (
            (draw.choice(sizes),) * rank if alike else tuple(draw.choice(sizes) for _ in range(rank))
            for sizes in ((1, 2, 3, 3, 5, 7), (1, 1, 1, 2, 3), (1, 1, 2, 3, 4))
        )
        pad = tuple(
            step * (extent - 1) // 2 if alike else draw.randint(0, step * (extent - 1))
            for extent, step in zip(kernel, dilation, strict=True)
        )
        geometry = Geometry(kernel, stride, pad, dilation, groups)
        if min(geometry.output_size(size)) > 0:
            return geometry, size, channels, outputs


def _problems(draw: random.Random, seed: int) -> Iterator[str]:
    torch.manual_seed(seed)
    geometry, size, channels, outputs = drawn(draw)
    batch, dtype = draw.choice([1, 2, 5]), draw.choice([torch.float32, torch.bfloat16])
    layout = draw.choice(_FORMATS.get(geometry.rank, [torch.contiguous_format]))
    x, weight, dy = (
        torch.randn(shape).to(dtype)
        for shape in (
            (batch, channels, *size),
            (outputs, channels // geometry.groups, *geometry.kernel),
            (batch, outputs, *geometry.output_size(size)),
        )
    )
    wide = [x.double().requires_grad_(), weight.double().requires_grad_()]
    walk = geometry.stride, geometry.pad, geometry.dilation
    y = torch.convolution(*wide, None, *walk, False, [0] * geometry.rank, geometry.groups)
    dx, dweight = torch.autograd.grad(y, wide, dy.double())
    x, dy = x.contiguous(memory_format=layout), dy.contiguous(memory_format=layout)
    total = torch.zeros(weight.shape, dtype=dtype)
    calls = (
        (FORWARD, Forward(x, weight, None, geometry, relu=False), y.detach()),
        (BACKWARD_DATA, BackwardData(dy, weight, size, geometry), dx),
        (BACKWARD_WEIGHT, BackwardWeight(total, 0.0, dy, x, geometry), dweight),
    )
    for operation, call, expected in calls:
        yield from (
            f"{problem}, {batch} of {'x'.join(map(str, (channels, *size)))} to {outputs}, filters"
            f" {'x'.join(map(str, geometry.kernel))} {geometry}, {str(layout)[6:]}"
            for problem in _differences(operation, call, expected)
        )


def _differences(operation: Operation, call, expected: torch.Tensor) -> Iterator[str]:
    ways = {candidate.name: candidate.run for candidate in operation.serving(call)}
    if needs_float32(call[0]) or operation.miscomputed(call):  # candidates are never given such operands
        ways = {"the rule, widened": partial(_compute, operation)}
    for name, way in ways.items():
        if operation.accumulates:
            call.total.fill_(float("nan"))
            way(call)
            result = call.total
        else:
            result = way(call)
        error = float((result.double() - expected).abs().max() / expected.abs().max().clamp(min=1e-30))
        if not error < _TOLERANCE[result.dtype]:
            yield f"{operation.name} by {name} in {str(result.dtype)[6:]} differs by {error:.1e}"


def _compute(operation: Operation, call):
    if operation.accumulates:
        return add_rounded(RULES, operation, call, call.total.dtype)
    return compute(RULES, operation, call)
