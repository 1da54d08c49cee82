"""What the C library's allocator costs a training step: processor time and peak memory of ways to set it.

    python benchmarks/allocator.py                       # five models, one thread

Ways: `default`; `mapped`, as commands that don't train do it (tensors above 8 MiB are mapped, with pages of 2 MiB, and
given back, smaller ones are kept); `kept` (malloc gives nothing back to the kernel, and its heap has pages of 2 MiB);
`laid out`, as `engine train` does it: kept, but for larger blocks in the first step, which are mapped; `laid out, 4
KiB`, the same with small pages alone. Each way is a process of its own, and they step in turns; reported are the median
of a step's processor time, the median of its ratio to the default in the same round, the pages that the kernel had to
give in a step (median), of either size, and the peak of resident memory during the steps over what the process had
after its imports.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import statistics
import subprocess
import sys
import time

import step_worker
from torch_models import BATCHES

WAYS = ("default", "mapped", "kept", "laid out", "laid out, 4 KiB")
_PR_SET_THP_DISABLE = 41


def serve(way: str, model: str) -> None:
    """Set the allocator, build the model's net, then make a step for every line."""
    from mgcaffe.engine import heap
    from mgcaffe.tools.running import process, steady_memory

    if way.endswith("4 KiB") and ctypes.CDLL(None).prctl(_PR_SET_THP_DISABLE, 1, 0, 0, 0):
        sys.exit("this kernel cannot leave out huge pages")
    if way == "mapped":
        process.speed_up_memory()
    elif way != "default":
        steady_memory.speed_up_training()
    import torch

    import mgcaffe.solvers.solver  # noqa: F401  (imports belong to the base line)

    torch.set_num_threads(1)
    base = step_worker.memory_kib("VmRSS")
    step = step_worker.our_step(model, BATCHES[model][0], "cpu", "float32")
    if way.startswith("laid out"):
        heap.map_blocks()
    step(1)
    if way.startswith("laid out"):
        heap.keep_blocks()
    step(2)
    step_worker.reset_peak()
    print("ready", flush=True)
    for _ in iter(sys.stdin.readline, "end\n"):
        pages, start = _pages(), time.process_time()
        step(1)
        print(json.dumps([time.process_time() - start, _pages() - pages]), flush=True)
    print((step_worker.memory_kib("VmHWM") - base) / 1024)


def _pages() -> int:
    """Return how many pages the kernel has given this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def compare(model: str, rounds: int) -> None:
    """Run all ways in turns; print a row for each."""
    processes = {way: _start(way, model) for way in WAYS}
    steps: dict[str, list[tuple[float, int]]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, process in processes.items():
            steps[way].append(tuple(json.loads(_ask(process, "step"))))
    default = [seconds for seconds, _ in steps["default"]]
    for way, process in processes.items():
        peak = float(_ask(process, "end"))
        process.wait()
        times, pages = zip(*steps[way], strict=True)
        ratio = statistics.median(one / other for one, other in zip(times, default, strict=True))
        print(
            f"| {model} | {way} | {1e3 * statistics.median(times):.1f} | {ratio:.3f} | {statistics.median(pages):.0f} "
            f"| {peak:.0f} |",
            flush=True,
        )


def _start(way: str, model: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--worker", way, model]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    while (line := process.stdout.readline()) != "ready\n":
        if not line:
            sys.exit(f"{model}, {way}: ended with code {process.wait()}")
    return process


def _ask(process: subprocess.Popen[str], text: str) -> str:
    """Send a line and return the answer."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()
    return process.stdout.readline()


def main() -> None:
    """Read the command line and print a Markdown table."""
    if sys.argv[1:2] == ["--worker"]:
        serve(*sys.argv[2:4])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = ["lenet", "cifar10_quick", "alexnet", "googlenet", "resnet50"]
    parser.add_argument("--models", nargs="+", choices=list(BATCHES), default=models)
    parser.add_argument("--rounds", type=int, default=7, help="counted steps of each way")
    options = parser.parse_args()
    print("| model | way | processor ms | / default | pages a step | peak MiB |")
    print("|---|---|---|---|---|---|")
    for model in options.models:
        compare(model, options.rounds)


if __name__ == "__main__":
    main()
