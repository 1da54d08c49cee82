"""What the C library's allocator costs a training step: processor time and peak memory of ways to set it.

    python benchmarks/allocator.py                       # lenet, alexnet, resnet50, one thread

Ways: `default`; `huge pages` (PyTorch asks the kernel for pages of 2 MiB); `kept` (malloc gives nothing back to the
kernel); `both`, as `engine train` does it: huge pages, tensors above 8 MiB mapped and given back, smaller ones kept.
Each run is a process of its own; the ways take turns; reported are the medians over rounds of the runs' medians,
and the peak of resident memory during the steps.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import step_worker
from torch_models import BATCHES

WAYS = ("default", "huge pages", "kept", "both")
STEPS = {"lenet": 100, "cifar10_quick": 20, "cifar10_full": 20, "alexnet": 5, "googlenet": 5, "resnet50": 4}


def prepare(way: str) -> None:
    """Set the allocator, before anything is allocated."""
    from mgcaffe.tools.running import process

    if way == "huge pages":
        os.environ["THP_MEM_ALLOC_ENABLE"] = "1"
    elif way == "kept":
        process.keep_freed_memory(process.MAX_MALLOC_BYTES)
    elif way == "both":
        process.speed_up_memory()


def run(way: str, model: str) -> None:
    """Return the worker: prints the median milliseconds of a step and the peak in MiB."""
    prepare(way)
    import torch

    torch.set_num_threads(1)
    one_step = step_worker.our_step(model, BATCHES[model][0], "cpu", "float32")
    for _ in range(3):
        one_step()
    step_worker.reset_peak()
    times = []
    for _ in range(STEPS[model]):
        start = time.process_time()
        one_step()
        times.append(time.process_time() - start)
    print(1e3 * statistics.median(times), step_worker.memory_kib("VmHWM") / 1024)


def main() -> None:
    """Read the command line and print a Markdown table."""
    if sys.argv[1:2] == ["--worker"]:
        run(*sys.argv[2:4])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(STEPS), default=["lenet", "alexnet", "resnet50"])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print("| model | " + " | ".join(WAYS) + " |")
    print("|---" * (len(WAYS) + 1) + "|")
    for model in options.models:
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way in WAYS:
                command = [sys.executable, Path(__file__), "--worker", way, model]
                words = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
                found[way].append((float(words[0]), float(words[1])))
        medians = [tuple(statistics.median(values) for values in zip(*found[way], strict=True)) for way in WAYS]
        print(f"| {model} | " + " | ".join(f"{cpu:.1f} ms, {peak:.0f} MiB" for cpu, peak in medians) + " |")


if __name__ == "__main__":
    main()
