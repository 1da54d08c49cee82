"""One training step of each model here and in plain PyTorch: time and peak memory, side by side.

    python benchmarks/step.py                                  # all models, one thread
    python benchmarks/step.py --models lenet resnet50 --rounds 15 --sides ours eager channels_last compile
    python benchmarks/step.py --json step.json

Every side runs in a process of its own, which computes only while its turn lasts: rounds go through the sides
one after the other, so that whatever else the machine does hits all alike. A step is forward, backward and update
with momentum and weight decay on the same batch; the first steps warm up and do not count. Reported are the
median time by the clock and of processor time (which other programs on the machine disturb less), each with its
ratio to the better PyTorch eager side (below 1: faster; the median over rounds of the ratio within a round), and
the peak of resident memory during the steps over what the process had after its imports.

Sides: `ours`; `eager` and `channels_last` (PyTorch autograd and torch.optim.SGD, the two memory formats);
`compile` (torch.compile of the model). `--same_malloc` gives the PyTorch sides the allocator settings that
`engine train` uses.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch_models import BATCHES, CLASSES, build

ROOT = Path(__file__).resolve().parent.parent
SIDES = ("ours", "eager", "channels_last", "compile")
RATE, MOMENTUM, DECAY = 1e-4, 0.9, 5e-4


def memory_kib(field: str) -> int:
    """Return a field of /proc/self/status in KiB: VmRSS (now) or VmHWM (its peak since the last reset)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"the kernel reports no {field}")


def reset_peak() -> None:
    """Make VmHWM start again from the present."""
    Path("/proc/self/clear_refs").write_text("5")


def batch_of(model: str) -> tuple[Any, Any]:
    """Return the batch that both sides train on: images and labels."""
    import torch

    shape = BATCHES[model]
    generator = torch.Generator().manual_seed(7)
    images = torch.randn(shape, generator=generator)
    labels = torch.randint(CLASSES[model], (shape[0],), generator=generator)
    return images, labels


def our_step(model: str) -> Callable[[], float]:
    """Return the engine's solver on the model's train net, its Data layer replaced by fixed inputs."""
    from mgcaffe.prototxt import LayerParameter, SolverParameter, read_net
    from mgcaffe.solvers.solver import Solver
    from mgcaffe.tools.running.process import keep_memory_of_small_net

    shape = BATCHES[model]
    net = read_net(ROOT / "models" / model / "train_val.prototxt")
    layers = [layer for layer in net.layer if layer.type != "Data" and not _is_auxiliary(layer.name)]
    source = LayerParameter(name="data", type="Input", top=["data", "label"])
    source.input_param.shape.add().dim.extend(shape)
    source.input_param.shape.add().dim.append(shape[0])
    del net.layer[:]
    net.layer.extend([source, *layers])
    solver = SolverParameter(base_lr=RATE, lr_policy="fixed", momentum=MOMENTUM, weight_decay=DECAY)
    solver.max_iter, solver.random_seed = 10**6, 1
    solver.solver_mode = solver.CPU
    solver.snapshot_after_train = False
    solver.net_param.CopyFrom(net)
    trainer = Solver(solver)
    keep_memory_of_small_net(trainer.net)
    images, labels = batch_of(model)
    for top, values in zip(trainer.net.layers[0].forward([]), (images, labels), strict=True):
        top.copy_(values)

    def step() -> float:
        trainer.step(1)
        return 0.0

    return step


def _is_auxiliary(name: str) -> bool:
    """Return whether a layer belongs to GoogLeNet's auxiliary heads, which the benchmark leaves out."""
    return name.startswith(("loss1/", "loss2/"))


def torch_step(model: str, side: str) -> Callable[[], float]:
    """Return the same net in plain PyTorch."""
    import torch

    torch.manual_seed(1)
    net = build(model)
    images, labels = batch_of(model)
    if side == "channels_last":
        net = net.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    run = torch.compile(net) if side == "compile" else net
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)

    def step() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(run(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def serve(side: str, model: str, threads: int, same_malloc: bool) -> None:
    """Run the worker: build its side, then run one step for every line it is sent."""
    if side == "ours" or same_malloc:
        from mgcaffe.tools.running.process import speed_up_memory

        speed_up_memory()
    import torch

    torch.set_num_threads(threads)
    if side == "ours":
        importlib.import_module("mgcaffe.solvers.solver")  # imports belong to the base line
    base = memory_kib("VmRSS")
    step = our_step(model) if side == "ours" else torch_step(model, side)
    for _ in range(3):
        step()
    reset_peak()
    print("ready", flush=True)
    for line in sys.stdin:
        if line.strip() == "end":
            break
        start, cpu = time.perf_counter(), time.process_time()
        step()
        print(time.perf_counter() - start, time.process_time() - cpu, flush=True)
    print(memory_kib("VmHWM") - base, flush=True)


class Worker:
    """One side's process."""

    def __init__(self, side: str, model: str, threads: int, same_malloc: bool) -> None:
        command = [sys.executable, __file__, "--worker", side, model, str(threads), str(int(same_malloc))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self._read() != "ready":
            raise SystemExit(f"{side} on {model} did not start")

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def _send(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._read()

    def step(self) -> tuple[float, float]:
        """Return the seconds of one step: by the clock, and of processor time."""
        wall, cpu = self._send("step").split()
        return float(wall), float(cpu)

    def end(self) -> float:
        """Peak memory in MiB; the process ends."""
        peak = float(self._send("end")) / 1024
        self.process.wait()
        return peak


def compare(model: str, sides: list[str], threads: int, rounds: int, same_malloc: bool) -> list[dict[str, Any]]:
    """Run the sides in turns; one row a side."""
    workers = {side: Worker(side, model, threads, same_malloc and side != "ours") for side in sides}
    times: dict[str, list[float]] = {side: [] for side in sides}
    cpu_times: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, worker in workers.items():
            wall, cpu = worker.step()
            times[side].append(wall)
            cpu_times[side].append(cpu)
    peaks = {side: worker.end() for side, worker in workers.items()}
    eager = [side for side in sides if side in ("eager", "channels_last")]
    best = min(eager, key=lambda side: statistics.median(cpu_times[side]), default=None)
    rows = []
    for side in sides:
        row = {
            "model": model,
            "batch": BATCHES[model][0],
            "threads": threads,
            "side": side,
            "median_ms": 1e3 * statistics.median(times[side]),
            "cpu_ms": 1e3 * statistics.median(cpu_times[side]),
            "peak_mib": peaks[side],
        }
        if best is not None:
            row["time_ratio"] = _median_ratio(times[side], times[best])
            row["cpu_ratio"] = _median_ratio(cpu_times[side], cpu_times[best])
            row["memory_ratio"] = peaks[side] / peaks[best]
            row["best_eager"] = best
        rows.append(row)
    return rows


def _median_ratio(mine: list[float], others: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(mine, others, strict=True))


def show(rows: list[dict[str, Any]]) -> None:
    """Print a Markdown table."""
    print("| model | batch | side | ms | / best eager | processor ms | / best eager | peak MiB | / best eager |")
    print("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        ratios = [f"{row[key]:.3f}" if key in row else "-" for key in ("time_ratio", "cpu_ratio", "memory_ratio")]
        mark = " (best eager)" if row.get("best_eager") == row["side"] else ""
        print(
            f"| {row['model']} | {row['batch']} | {row['side']}{mark} | {row['median_ms']:.1f} | {ratios[0]} "
            f"| {row['cpu_ms']:.1f} | {ratios[1]} | {row['peak_mib']:.0f} | {ratios[2]} |"
        )


def main() -> None:
    """Read the command line and run the comparison."""
    if sys.argv[1:2] == ["--worker"]:
        side, model, threads, same_malloc = sys.argv[2:6]
        serve(side, model, int(threads), same_malloc == "1")
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(BATCHES), default=list(BATCHES))
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=["ours", "eager", "channels_last"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11, help="counted steps a side")
    parser.add_argument("--same_malloc", action="store_true", help="our allocator settings for PyTorch as well")
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for model in options.models:
        rows += compare(model, options.sides, options.threads, options.rounds, options.same_malloc)
        print(f"{model}: done", file=sys.stderr)
    show(rows)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
