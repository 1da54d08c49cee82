"""One training step of each model here and in plain PyTorch: time and peak memory, side by side.

    python benchmarks/step.py                                  # all models, one thread
    python benchmarks/step.py --models lenet resnet50 --rounds 15 --sides ours eager channels_last compile
    python benchmarks/step.py --precision bf16                 # ours in bf16 and float32, PyTorch's autocast
    python benchmarks/step.py --precision fp16 --device cuda   # the same in fp16, with factors on the loss
    python benchmarks/step.py --autotune on --winograd safe    # ours as measured anew; a side ours_rules has the rules
    python benchmarks/step.py --same_malloc                    # a second table, PyTorch with our allocator settings
    python benchmarks/step.py --device cuda --precision tf32 --models resnet50 --batch 256

Every side runs in a process of its own, which computes only while its turn lasts: rounds go through the sides
one after the other, so that whatever else the machine does hits all alike. A turn has as many steps as make 0.1 s, at
least one, and one before that does not count where a turn has several: steps of training follow each other. A step is
forward, backward and update with momentum and weight decay on the same batch. Reported are the median time by the clock
and of processor time (which other programs on the machine disturb less), each with its ratio to the better PyTorch
eager side (below 1: faster; the median over rounds of the ratio within a round), the share of the machine's arithmetic
that the step reaches, and the peak of memory during the steps: resident memory over what the process had after its
imports, or on a GPU what PyTorch's allocator gave out.

The share is the operations of the products and convolutions of a step (by the direct methods) over its time and the
best matrix product that was measured before the first side and after the last (benchmarks/machine_limit.py).

With `--autotune` one more process measures the ways to compute before, as a first run does, and `ours` reads what it
recorded: what measuring keeps of memory shall not count.

Sides: `ours`; `ours_float32` (ours in float32, to see what a precision gives); `ours_rules` (ours without `--autotune`,
to see what that gives); `ours_layers` (ours with every layer run by its code, to see what replaying captured passes
gives); `eager` and `channels_last` (PyTorch
autograd and torch.optim.SGD, the two memory formats); `compile` (torch.compile of the model; on a GPU channels last and
in mode max-autotune). On a GPU PyTorch's SGD is the fused one, and cuDNN tries its algorithms on every side
(torch.backends.cudnn.benchmark).

Precisions: `float32`; `tf32` on a GPU: products of float32 whose operands are rounded to TF32, on every side; `bf16`:
torch.autocast(bfloat16) around PyTorch's forward pass, and the solver's `precision: "bf16"` for ours; `fp16`: the
same in float16, with torch.amp.GradScaler.
"""

from __future__ import annotations

import argparse
import json
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from machine_limit import PRECISIONS
from torch_models import BATCHES

HERE = Path(__file__).resolve().parent
SIDES = ("ours", "ours_float32", "ours_rules", "ours_layers", "eager", "channels_last", "compile")


class SideFailed(Exception):
    """A side ended, or did not begin within its time; holds what it wrote last."""


class Worker:
    """One side's process."""

    def __init__(self, side: str, model: str, options: argparse.Namespace, same_malloc: bool) -> None:
        self.side = side
        command = [sys.executable, str(HERE / "step_worker.py"), side, model, *_words(model, options)]
        command += ["--same_malloc"] if same_malloc and not side.startswith("ours") else []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._take_lines, daemon=True).start()
        try:
            self._read(options.start_limit)
        except SideFailed:
            self.kill()
            raise

    def _take_lines(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")

    def _read(self, limit_s: float | None = None) -> Any:
        """Return what the next line of JSON says; what libraries print between is passed on to stderr."""
        end = None if limit_s is None else time.monotonic() + limit_s
        while True:
            try:
                line = self._lines.get(timeout=None if end is None else max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise SideFailed(f"{self.side}: not ready within {limit_s:g} s") from None
            if not line:
                raise SideFailed(f"{self.side}: ended with code {self.process.wait()}")
            try:
                return json.loads(line)
            except ValueError:
                sys.stderr.write(line)

    def _send(self, line: str) -> Any:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise SideFailed(f"{self.side}: ended with code {self.process.wait()}") from None
        return self._read()

    def take_turn(self) -> tuple[float, float]:
        """Return the mean seconds of a step in a turn: by the clock, and of processor time."""
        wall, cpu = self._send("turn")
        return wall, cpu

    def end(self) -> float:
        """Peak memory in MiB; the process ends."""
        peak = self._send("end")["peak_kib"] / 1024
        self.process.wait()
        return float(peak)

    def kill(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def _words(model: str, options: argparse.Namespace) -> list[str]:
    """Return the options that a worker is given."""
    batch = options.batch or BATCHES[model][0]
    return [
        f"--batch={batch}", f"--threads={options.threads}", f"--device={options.device}",
        f"--precision={options.precision}", f"--autotune={options.autotune}", f"--winograd={options.winograd}",
    ]  # fmt: skip


def measure_first(model: str, options: argparse.Namespace) -> None:
    """Have a process of its own measure and record (`--autotune`): it keeps memory that later runs do without."""
    try:
        Worker("ours", model, options, same_malloc=False).kill()
    except SideFailed as error:
        print(f"{model}: measuring: {error}", file=sys.stderr)


def compare(model: str, options: argparse.Namespace, flops: int, same_malloc: bool = False) -> list[dict[str, Any]]:
    """Run the sides in turns; one row a side. A side that fails is said to have, and left out.

    Args:
        model: a key of BATCHES.
        options: the command line's.
        flops: the operations of a step.
        same_malloc: PyTorch's sides get our allocator settings.
    """
    workers: dict[str, Worker] = {}
    if options.autotune != "off" and "ours" in options.sides:
        measure_first(model, options)
    try:
        for side in options.sides:
            try:
                workers[side] = Worker(side, model, options, same_malloc)
            except SideFailed as error:
                print(f"{model}: {error}", file=sys.stderr)
        if not workers:
            return []
        times: dict[str, list[float]] = {side: [] for side in workers}
        cpu_times: dict[str, list[float]] = {side: [] for side in workers}
        for _ in range(options.rounds):
            for side, worker in workers.items():
                wall, cpu = worker.take_turn()
                times[side].append(wall)
                cpu_times[side].append(cpu)
        peaks = {side: worker.end() for side, worker in workers.items()}
    except SideFailed as error:
        print(f"{model}: {error}", file=sys.stderr)
        return []
    finally:
        for worker in workers.values():
            worker.kill()
    eager = [side for side in workers if side in ("eager", "channels_last")]
    decisive = times if options.device == "cuda" else cpu_times
    best = min(eager, key=lambda side: statistics.median(decisive[side]), default=None)
    rows = []
    for side in workers:
        row: dict[str, Any] = {
            "model": model,
            "batch": options.batch or BATCHES[model][0],
            "device": options.device,
            "precision": options.precision,
            "threads": options.threads,
            "autotune": options.autotune,
            "winograd": options.winograd,
            "same_malloc": same_malloc,
            "side": side,
            "median_ms": 1e3 * statistics.median(times[side]),
            "cpu_ms": 1e3 * statistics.median(cpu_times[side]),
            "gflops": 1e-9 * flops / statistics.median(times[side]),
            "peak_mib": peaks[side],
        }
        if best is not None:
            row["time_ratio"] = _median_ratio(times[side], times[best])
            row["cpu_ratio"] = _median_ratio(cpu_times[side], cpu_times[best])
            row["memory_ratio"] = peaks[side] / peaks[best] if peaks[best] else 1.0
            row["best_eager"] = best
        rows.append(row)
    return rows


def _median_ratio(mine: list[float], others: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(mine, others, strict=True))


def show(rows: list[dict[str, Any]], limit: dict[str, Any]) -> None:
    """Print a Markdown table, with the share of the machine's best product in each row."""
    print(
        "| model | batch | side | ms | / best eager | processor ms | / best eager | of the best product "
        "| peak MiB | / best eager |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        ratios = [f"{row[key]:.3f}" if key in row else "-" for key in ("time_ratio", "cpu_ratio", "memory_ratio")]
        mark = " (best eager)" if row.get("best_eager") == row["side"] else ""
        share = row["gflops"] / limit["gflops"]
        print(
            f"| {row['model']} | {row['batch']} | {row['side']}{mark} | {row['median_ms']:.1f} | {ratios[0]} "
            f"| {row['cpu_ms']:.1f} | {ratios[1]} | {share:.1%} | {row['peak_mib']:.0f} | {ratios[2]} |"
        )


def measure_limit(options: argparse.Namespace) -> dict[str, Any]:
    """Return what the machine reaches now, measured in a process of its own."""
    words = [f"--device={options.device}", f"--precision={options.precision}", f"--threads={options.threads}"]
    command = [sys.executable, str(HERE / "machine_limit.py"), *words]
    return dict(
        json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
    )


def count_flops(model: str, options: argparse.Namespace) -> int:
    """Return the operations of a step's products and convolutions."""
    command = [sys.executable, str(HERE / "step_worker.py"), "flops", model, *_words(model, options)]
    return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def parse(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line; what cannot be measured ends the program with code 2 and says why."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(BATCHES), default=list(BATCHES))
    parser.add_argument("--sides", nargs="+", choices=SIDES, help="default: ours, eager, channels_last")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    parser.add_argument("--autotune", default="off", metavar="off|on|FILE", help="ours: the solver's field `autotune`")
    parser.add_argument("--winograd", choices=("off", "safe", "fast"), default="off", help="ours: the field `winograd`")
    parser.add_argument("--batch", type=int, help="images in a batch; default: each model's own")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11, help="turns a side")
    parser.add_argument(
        "--same_malloc", action="store_true", help="a second table: PyTorch with our allocator settings"
    )
    parser.add_argument(
        "--start_limit", type=float, metavar="S", help="leave a side out that is not ready after S seconds"
    )
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON")
    options = parser.parse_args(words)
    if options.sides is None:
        beside = ["ours_float32"] if options.precision in ("bf16", "fp16") else []
        options.sides = ["ours", *beside, "eager", "channels_last"]
    if options.precision == "tf32" and options.device == "cpu":
        parser.error("--precision tf32: only GPUs have TF32; give --device cuda")
    if options.same_malloc and options.device == "cuda":
        parser.error("--same_malloc: the settings are those of the host's memory; leave --device cuda out")
    if options.winograd != "off" and options.autotune == "off":
        parser.error("--winograd: it says what --autotune may choose; give --autotune on")
    if options.batch is not None and options.batch < 1:
        parser.error("--batch: a batch has at least one image")
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads are at least 1")
    if options.device == "cuda":
        import torch

        if not torch.cuda.is_available():
            parser.error(f"--device cuda: PyTorch {torch.__version__} finds no GPU here")
    return options


def main() -> None:
    """Run the comparison."""
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        if options.autotune == "on":  # times of an earlier run, on a busy machine perhaps, shall not count
            options.autotune = str(Path(folder, "choices.json"))
        run(options)


def run(options: argparse.Namespace) -> None:
    """Measure and print."""
    limit = measure_limit(options)
    tables: dict[bool, list[dict[str, Any]]] = {False: []} | ({True: []} if options.same_malloc else {})
    for model in options.models:
        flops = count_flops(model, options)
        for same_malloc, rows in tables.items():
            rows += compare(model, options, flops, same_malloc)
        print(f"{model}: done", file=sys.stderr)
    again = measure_limit(options)
    for key in ("gflops", "gbytes"):
        limit[key] = max(limit[key], again[key])
    print(
        f"{limit['device']}, {options.precision}: best product {limit['gflops']:,.0f} GFLOP/s ({limit['size']} x "
        f"{limit['size']}), best copy {limit['gbytes']:,.1f} GB/s, read and written\n"
    )
    for same_malloc, rows in tables.items():
        if same_malloc:
            print("\nPyTorch with the engine's allocator settings:\n")
        show(rows, limit)
    if options.json:
        limits = {"limit_gflops": limit["gflops"], "limit_gbytes": limit["gbytes"]}
        written = [row | limits for rows in tables.values() for row in rows]
        Path(options.json).write_text(json.dumps(written, indent=2) + "\n")
    if not all(tables.values()):
        sys.exit("nothing was measured")


if __name__ == "__main__":
    main()
