"""What `--autotune=on` gives, and `--winograd` with it: passes by the rules and as measured, in turns in one process.

    OMP_NUM_THREADS=1 python benchmarks/autotune.py            # five models, one thread
    OMP_NUM_THREADS=1 python benchmarks/autotune.py --models lenet --rounds 41 --details
    OMP_NUM_THREADS=1 python benchmarks/autotune.py --sides safe fast --memory

All sides are one net, whose choices change between forward and backward passes: `off` (the rules), `on`, and `safe` and
`fast` (`--autotune=on` with this `--winograd`). Each row is a side; reported are how many operations run otherwise than
by rule, how long measuring took and by how much it raised this process's memory (another one measures) before the
net's first pass; medians of processor time, and the median over rounds of the ratio to `off` within a round (below 1:
measuring gives something).
`--details` lists the operations that run otherwise than by rule, with the times that were measured. `--memory` adds by
how much three passes raise the memory of a process of their own that reads what was measured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import torch
from torch_models import BATCHES, CLASSES

from mgcaffe.engine import Net
from mgcaffe.engine.kernels.choice.choices import RULES, Choices, Recorded
from mgcaffe.prototxt import LayerParameter, read_net
from mgcaffe.solvers.setup.autotune import BOUNDS, Tuning, tune_net
from mgcaffe.tools.running.process import speed_up_memory

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("lenet", "cifar10_quick", "alexnet", "googlenet", "resnet50")
SIDES = {"on": BOUNDS["OFF"], "safe": BOUNDS["SAFE"], "fast": BOUNDS["FAST"]}


def build(model: str) -> Net:
    """Return the model's training net, its Data layer replaced by fixed inputs."""
    shape = BATCHES[model]
    param = read_net(ROOT / "models" / model / "train_val.prototxt")
    layers = [layer for layer in param.layer if layer.type != "Data"]
    source = LayerParameter(name="data", type="Input", top=["data", "label"])
    source.input_param.shape.add().dim.extend(shape)
    source.input_param.shape.add().dim.append(shape[0])
    del param.layer[:]
    param.layer.extend([source, *layers])
    net = Net(param, keep_blobs=False, seed=1)
    generator = torch.Generator().manual_seed(7)
    images, labels = net.layers[0].forward([])
    images.copy_(torch.randn(shape, generator=generator))
    labels.copy_(torch.randint(CLASSES[model], (shape[0],), generator=generator))
    return net


def memory_mib(field: str) -> float:
    """Return a field of /proc/self/status: VmRSS (now) or VmHWM (its peak since the last reset)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field + ":")).split()[1]) / 1024


def reset_peak() -> None:
    """Have VmHWM begin with what the process holds now."""
    Path("/proc/self/clear_refs").write_text("5")


def seconds(net: Net, choices: Choices) -> float:
    """Return the processor time of one pass in each direction."""
    net.context.choices = choices
    net.clear_param_diffs()
    began = time.process_time()
    net.forward_backward()
    return time.process_time() - began


def peak_mib(model: str, file: str, side: str, threads: int) -> float:
    """Return by how much three passes raise this process's memory; run in a process of its own."""
    speed_up_memory()
    torch.set_num_threads(threads)
    net = build(model)
    choices: Choices = RULES
    if side in SIDES:
        choices = Recorded(tune_net(net, file, print, SIDES[side], measures=False).records, SIDES[side])
    reset_peak()
    before = memory_mib("VmRSS")
    for _ in range(3):
        seconds(net, choices)
    return memory_mib("VmHWM") - before


def compare(model: str, options: argparse.Namespace) -> None:
    """Print a row for each side, and with `details` what has changed."""
    net = build(model)
    tunings, rows = {}, {}
    with ExitStack() as stack:
        folder = options.folder or stack.enter_context(tempfile.TemporaryDirectory())
        file = str(Path(folder, f"{model}.json"))
        for side in options.sides:
            reset_peak()
            before, began = memory_mib("VmRSS"), time.perf_counter()
            tunings[side] = tune_net(net, file, print, SIDES[side])
            rows[side] = f"{time.perf_counter() - began:.1f} | {memory_mib('VmHWM') - before:.0f}"
        peaks = {}
        if options.memory:
            with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
                for side in ("off", *options.sides):
                    peaks[side] = pool.apply(peak_mib, (model, file, side, options.threads))
    sides: dict[str, Choices] = {"off": RULES}
    sides |= {side: Recorded(tuning.records, SIDES[side]) for side, tuning in tunings.items()}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(options.rounds + 2):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            taken = seconds(net, sides[name])
            if number > 1:
                times[name].append(taken)
    for name in sides:
        ratio = statistics.median(one / off for one, off in zip(times[name], times["off"], strict=True))
        peak = f" {peaks[name]:.0f} |" if peaks else ""
        print(
            f"| {model} | {BATCHES[model][0]} | {name} | {changed(tunings.get(name))} | {rows.get(name, ' | ')} "
            f"| {1e3 * statistics.median(times[name]):.1f} | {ratio:.3f} |{peak}",
            flush=True,
        )
    if options.details:
        for name, tuning in tunings.items():
            show(name, tuning)


def changed(tuning: Tuning | None) -> str:
    """Return how many of the net's operations run otherwise than by rule."""
    if tuning is None:
        return ""
    operations = {text for layer in tuning.layers for text in layer.operations}
    others = sum(tuning.records[text].chosen != tuning.records[text].rule for text in operations)
    return f"{others} of {len(operations)}"


def show(side: str, tuning: Tuning) -> None:
    """Print the operations that run otherwise than by rule, once each."""
    texts = dict.fromkeys(text for layer in tuning.layers for text in layer.operations)
    for text in texts:
        each = tuning.records[text]
        if each.chosen != each.rule:
            rule, chosen = (f"{name} {1e3 * each.seconds[name]:.3f} ms" for name in (each.rule, each.chosen))
            print(f"    {side}: {text}: {rule} -> {chosen}")


def main() -> None:
    """Read the command line and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(BATCHES), default=list(MODELS))
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=["on"], help="compared with off")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11, help="counted passes a side")
    parser.add_argument("--folder", help="keep what is measured here, and measure only what isn't kept")
    parser.add_argument("--details", action="store_true", help="list the operations that run otherwise than by rule")
    parser.add_argument("--memory", action="store_true", help="measure the memory of passes as well")
    options = parser.parse_args()
    speed_up_memory()
    torch.set_num_threads(options.threads)
    peak = " memory, MiB |" if options.memory else ""
    print(f"| model | batch | side | operations changed | measuring, s | and its MiB | ms | ratio |{peak}")
    print("|---" * (9 if options.memory else 8) + "|")
    for model in options.models:
        compare(model, options)


if __name__ == "__main__":
    main()
