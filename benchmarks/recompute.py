"""What `--recompute=auto` gives: a training step's time and peak memory with and without it, side by side.

    python benchmarks/recompute.py                            # ResNet-50, GoogLeNet and AlexNet, one thread
    python benchmarks/recompute.py --models resnet50 --rounds 15

Each side is a process of its own (`step_worker.py`, as for benchmarks/step.py), and they take turns. The peak is
resident memory during the steps over what the process had after its imports. A net's weights, their gradients and
their history are there either way; the last columns show the peak without them: values, gradients between layers, and
what the operations need meanwhile.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from step import Worker
from torch_models import BATCHES, build

SIDES = ("ours", "recompute")
_COPIES = 3  # weights, gradients, history


def parameter_mib(model: str) -> float:
    """Return what a model's weights, gradients and history take."""
    with torch.device("meta"):
        return _COPIES * sum(each.numel() * each.element_size() for each in build(model).parameters()) / 2**20


def compare(model: str, options: argparse.Namespace) -> str:
    """Run both sides in turns; return the row of the table."""
    workers: dict[str, Worker] = {}
    try:
        for side in SIDES:
            workers[side] = Worker(side, model, options, same_malloc=False)
        times: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
        for _ in range(options.rounds):
            for side, worker in workers.items():
                times[side].append(worker.take_turn())
        plain, again = (worker.end() for worker in workers.values())
    finally:
        for worker in workers.values():
            worker.kill()
    wall, cpu = (
        statistics.median(one[kind] / other[kind] for one, other in zip(times["recompute"], times["ours"], strict=True))
        for kind in (0, 1)
    )
    milliseconds = [f"{1e3 * statistics.median(step[0] for step in times[side]):.1f}" for side in SIDES]
    rest = [peak - parameter_mib(model) for peak in (plain, again)]
    figures = [
        *milliseconds, f"{wall:.3f}", f"{cpu:.3f}", f"{plain:.0f}", f"{again:.0f}", f"{again / plain:.3f}",
        f"{rest[0]:.0f}", f"{rest[1]:.0f}", f"{rest[1] / rest[0]:.3f}",
    ]  # fmt: skip
    return f"| {model} | {options.batch or BATCHES[model][0]} | {' | '.join(figures)} |"


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(BATCHES), default=["resnet50", "googlenet", "alexnet"])
    parser.add_argument("--batch", type=int, help="images in a batch; default: each model's own")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7, help="turns a side")
    options = parser.parse_args()
    options.device, options.precision, options.start_limit = "cpu", "float32", None
    options.autotune = options.winograd = "off"
    print(
        "| model | batch | ms | ms with it | ratio | processor time, ratio | peak MiB | with it | ratio "
        "| without parameters, MiB | with it | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for model in options.models:
        print(compare(model, options), flush=True)


if __name__ == "__main__":
    main()
