"""Every layer type against the same work in PyTorch's functional operators and autograd, forward and backward.

    python benchmarks/layers.py                                # all cases, one thread
    python benchmarks/layers.py --only Pooling LRN --rounds 41
    python benchmarks/layers.py --only Convolution InnerProduct --autotune    # ours as measured, not by rule
    python benchmarks/layers.py --json layers.json

Both sides get the same numbers and run in turns in one process; a round is one forward and one backward pass of
each. Our side gets four-dimensional blobs channels last, as the net hands them on; PyTorch runs in both memory
formats. Nothing may be overwritten, though in a net many layers work in place. A table's gradient is of the rows
that were looked up, each once, on both sides. malloc keeps what is freed, as in training and for both sides: otherwise
chance decides whose memory comes from the kernel page by page, which may double a layer's time. Reported are
medians of processor time and two ratios, each the median over rounds (below 1: ours is faster): to PyTorch on the same
blobs, and to PyTorch in its better format. Where the second is the larger one, the layer pays for a change of format
(Flatten, Softmax over channels), which a net pays once, where its feature maps end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from layer_cases import CASES, Case

from mgcaffe.engine import fillers, registry
from mgcaffe.engine.kernels.choice.choices import Recorded
from mgcaffe.engine.kernels.choice.contest import Contest
from mgcaffe.engine.layer import Layer
from mgcaffe.engine.layer_context import LayerContext
from mgcaffe.engine.parameter import Parameter
from mgcaffe.engine.row_parameter import RowParameter
from mgcaffe.prototxt import LayerParameter, parse_text
from mgcaffe.tools.running.steady_memory import speed_up_training

Results = tuple[list[torch.Tensor], list[torch.Tensor | None]]
Step = Callable[[], Results]


def bottoms_of(case: Case) -> list[torch.Tensor]:
    """Return the case's inputs, in the ordinary format."""
    generator = torch.Generator().manual_seed(11)
    return [
        case.makers[index](shape, generator) if index in case.makers else torch.randn(shape, generator=generator)
        for index, shape in enumerate(case.shapes)
    ]


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """x channels last if it has four axes."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def gradient_of(top: torch.Tensor) -> torch.Tensor:
    """Return the gradient that both sides start from: 1 for a loss, else noise; in the top's format."""
    if top.dim() == 0:
        return torch.ones_like(top)
    noise = torch.randn(top.shape, generator=torch.Generator().manual_seed(13))
    return torch.empty_like(top).copy_(noise)


def our_layer(case: Case) -> tuple[Layer, int]:
    """Return the layer, ready to run, and how many tops it makes."""
    names = "".join(f"bottom: 'in{index}' " for index in range(len(case.shapes)))
    text = f"name: 'l' type: '{case.type}' {names} top: 'a' {case.text}"
    context = LayerContext(memory_format=torch.channels_last)
    layer = registry.create(parse_text(text, LayerParameter), context)
    layer.wants_bottom = [layer.differentiable(index) for index in range(len(case.shapes))]
    layer.backward_follows = case.backward
    layer.setup(case.shapes)
    tops = layer.reshape(case.shapes)
    for parameter in layer.parameters:
        parameter.data, parameter.diff = torch.zeros(parameter.shape), torch.zeros(parameter.shape)
        if parameter.initial is not None:
            parameter.data.copy_(parameter.initial)
        else:
            fillers.fill(parameter.data, parameter.filler, context.generator)
    layer.may_overwrite_top_diff = [False] * len(tops)
    return layer, len(tops)


def our_step(case: Case, layer: Layer, count: int) -> Step:
    """Return one forward and one backward pass of ours: the tops, and the gradients of bottoms and parameters."""
    inputs = [channels_last(x) for x in bottoms_of(case)]
    diffs = [gradient_of(top) for top in layer.forward(list(inputs))[:count]]

    def step() -> Results:
        for parameter in layer.parameters:
            parameter.fresh = True
        tops = layer.forward(list(inputs))
        if not case.backward:
            return tops, []
        gradients = [gradient for gradient in layer.backward(list(diffs), layer.wants_bottom) if gradient is not None]
        layer.release()  # as a training net does; PyTorch's graph is gone here as well
        return tops, gradients + [_gradient(parameter) for parameter in layer.parameters if parameter.wanted]

    return step


def _gradient(parameter: Parameter) -> torch.Tensor:
    """Return a parameter's gradient, a table's by rows."""
    if not isinstance(parameter, RowParameter):
        return parameter.diff
    rows, values = parameter.merged()
    return torch.sparse_coo_tensor(rows[None], values, parameter.shape, check_invariants=False)


def torch_step(case: Case, layer: Layer, last: bool) -> Step:
    """Return the same in PyTorch; `last`: channels last."""
    inputs = bottoms_of(case)
    if last:
        inputs = [channels_last(x) for x in inputs]
    parameters = [case.arrange(parameter.data.clone()) for parameter in layer.parameters]
    wanted: list[torch.Tensor] = []
    if case.backward:
        wanted = [x for x, wants in zip(inputs, layer.wants_bottom, strict=True) if wants]
        wanted += [data for data, parameter in zip(parameters, layer.parameters, strict=True) if parameter.wanted]
        for tensor in wanted:
            tensor.requires_grad_()
    with torch.no_grad():
        diffs = [gradient_of(top) for top in _as_list(case.function(*inputs, *parameters))]

    def step() -> Results:
        tops = _as_list(case.function(*inputs, *parameters))
        if not case.backward:
            return tops, []
        gradients = torch.autograd.grad(tops, wanted, diffs, allow_unused=True)
        return tops, [x.coalesce() if x is not None and x.is_sparse else x for x in gradients]

    return step


def _as_list(tops: Any) -> list[torch.Tensor]:
    return list(tops) if isinstance(tops, (list, tuple)) else [tops]


def tune(case: Case, layer: Layer, count: int) -> None:
    """Have the layer compute as is fastest for the case."""
    contest = Contest({})
    layer.context.choices = contest
    our_step(case, layer, count)()
    layer.context.choices = Recorded(contest.records)


def compare(case: Case, rounds: int, autotune: bool) -> dict[str, Any]:
    """Run the sides in turns."""
    layer, count = our_layer(case)
    if autotune:
        tune(case, layer, count)
    sides = {"ours": our_step(case, layer, count), "contiguous": torch_step(case, layer, False)}
    if any(len(shape) == 4 for shape in case.shapes):
        sides["channels_last"] = torch_step(case, layer, True)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for step in sides.values():
        step()
        step()
    start = time.perf_counter()
    for _ in range(3):
        sides["ours"]()
    # Short steps are repeated, so that a reading is long against the clock's own cost.
    repeats = max(1, min(100, round(0.003 / ((time.perf_counter() - start) / 3 + 1e-9))))
    for number in range(rounds):
        # In both orders by turns, since a step finds the caches as the one before left them.
        for name in list(sides)[:: -1 if number % 2 else 1]:
            step = sides[name]
            began = time.process_time()
            for _ in range(repeats):
                step()
            times[name].append((time.process_time() - began) / repeats)
    best = min((name for name in sides if name != "ours"), key=lambda name: statistics.median(times[name]))
    same = "channels_last" if "channels_last" in sides else "contiguous"
    return {
        "case": case.name,
        "ours_ms": 1e3 * statistics.median(times["ours"]),
        "torch_ms": 1e3 * statistics.median(times[same]),
        "ratio": _median_ratio(times["ours"], times[same]),
        "better_format": best,
        "better_format_ratio": _median_ratio(times["ours"], times[best]),
    }


def _median_ratio(mine: list[float], others: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(mine, others, strict=True))


def main() -> None:
    """Read the command line and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="CASE", help="these layer types, or cases by name, alone")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--autotune", action="store_true", help="ours by what is measured to be fastest")
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON")
    options = parser.parse_args()
    speed_up_training()
    torch.set_num_threads(options.threads)
    chosen = [case for case in CASES if not options.only or {case.type, case.name} & set(options.only)]
    if not chosen:
        parser.error(f"no case of {', '.join(options.only)}; types: {', '.join(sorted({c.type for c in CASES}))}")
    rows = []
    print("| layer | bottoms | ours, ms | PyTorch, ms | ratio | to its better format |")
    print("|---|---|---|---|---|---|")
    for case in chosen:
        row = compare(case, options.rounds, options.autotune)
        rows.append(row)
        shapes = ", ".join("x".join(map(str, shape)) for shape in case.shapes)
        times = f"{row['ours_ms']:.3f} | {row['torch_ms']:.3f}"
        print(
            f"| {row['case']} | {shapes} | {times} | {row['ratio']:.2f} | {row['better_format_ratio']:.2f} |",
            flush=True,
        )
    slower = [row["case"] for row in rows if row["ratio"] > 1.05]
    print(f"\n{len(rows)} cases, {len(slower)} more than 5 % slower: {', '.join(slower) or 'none'}", file=sys.stderr)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
