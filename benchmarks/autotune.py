"""What `--autotune=on` gives: a forward and a backward pass by the rules and as measured, in turns in one process.

    OMP_NUM_THREADS=1 python benchmarks/autotune.py            # five models, one thread
    OMP_NUM_THREADS=1 python benchmarks/autotune.py --models lenet --rounds 41 --details

Both sides are one net, whose choices change between passes. Reported are how long measuring took and by how much it
raised the process's memory, before the net's first pass; medians of processor time, and the median over rounds of the
ratio within a round (below 1: measuring gives something). `--details` lists the operations that run otherwise than by
rule, with the times that were measured.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from torch_models import BATCHES, CLASSES

from mgcaffe.engine import Net
from mgcaffe.engine.kernels.choice.choices import RULES, Choices, Recorded
from mgcaffe.prototxt import LayerParameter, read_net
from mgcaffe.solvers.setup.autotune import Tuning, tune_net
from mgcaffe.tools.running.process import speed_up_memory

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("lenet", "cifar10_quick", "alexnet", "googlenet", "resnet50")


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


def seconds(net: Net, choices: Choices) -> float:
    """Return the processor time of one pass in each direction."""
    net.context.choices = choices
    net.clear_param_diffs()
    began = time.process_time()
    net.forward_backward()
    return time.process_time() - began


def compare(model: str, rounds: int, details: bool) -> None:
    """Print one row, and with `details` what has changed."""
    net = build(model)
    Path("/proc/self/clear_refs").write_text("5")
    before = memory_mib("VmRSS")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tuning = tune_net(net, str(Path(folder, "choices.json")), print)
    tuning_s, tuning_mib = time.perf_counter() - began, memory_mib("VmHWM") - before
    sides: dict[str, Choices] = {"off": RULES, "on": Recorded(tuning.records)}
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds + 2):
        for name in list(sides)[:: -1 if number % 2 else 1]:
            taken = seconds(net, sides[name])
            if number > 1:
                times[name].append(taken)
    ratio = statistics.median(on / off for on, off in zip(times["on"], times["off"], strict=True))
    off, on = (1e3 * statistics.median(times[name]) for name in ("off", "on"))
    operations = {text for layer in tuning.layers for text in layer.operations}
    changed = sum(tuning.records[text].chosen != tuning.records[text].rule for text in operations)
    print(
        f"| {model} | {BATCHES[model][0]} | {changed} of {len(operations)} | {tuning_s:.1f} | {tuning_mib:.0f} "
        f"| {off:.1f} | {on:.1f} | {ratio:.3f} |",
        flush=True,
    )
    if details:
        show(tuning)


def show(tuning: Tuning) -> None:
    """Print the operations that run otherwise than by rule, once each."""
    texts = dict.fromkeys(text for layer in tuning.layers for text in layer.operations)
    for text in texts:
        each = tuning.records[text]
        if each.chosen != each.rule:
            rule, chosen = (f"{name} {1e3 * each.seconds[name]:.3f} ms" for name in (each.rule, each.chosen))
            print(f"    {text}: {rule} -> {chosen}")


def main() -> None:
    """Read the command line and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=list(BATCHES), default=list(MODELS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=11, help="counted passes a side")
    parser.add_argument("--details", action="store_true", help="list the operations that run otherwise than by rule")
    options = parser.parse_args()
    speed_up_memory()
    torch.set_num_threads(options.threads)
    print("| model | batch | operations changed | measuring, s | and its MiB | off, ms | on, ms | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    for model in options.models:
        compare(model, options.rounds, options.details)


if __name__ == "__main__":
    main()
