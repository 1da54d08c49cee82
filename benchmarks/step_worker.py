"""One side of benchmarks/step.py: a process that builds its net, then takes a turn for every line it is sent."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine_limit import set_precision
from torch_models import BATCHES, CLASSES, build

Step = Callable[[int], object]
"""Makes so many steps, one after the other."""

ROOT = Path(__file__).resolve().parent.parent
OURS = {
    "ours": "off",
    "ours_float32": "off",
    "ours_rules": "off",
    "ours_layers": "off",
    "recompute": "auto",
}  # sides that the engine computes, with the solver's field `recompute`
RATE, MOMENTUM, DECAY = 1e-4, 0.9, 5e-4
_TURN_S = 0.1
_SPIN_S = 0.02


def memory_kib(field: str) -> int:
    """Return a field of /proc/self/status in KiB: VmRSS (now) or VmHWM (its peak since the last reset)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"the kernel reports no {field}")


def reset_peak() -> None:
    """Make VmHWM start again from the present."""
    Path("/proc/self/clear_refs").write_text("5")


def batch_of(model: str, batch: int) -> tuple[Any, Any]:
    """Return the batch that both sides train on, in the host's memory: images and labels."""
    import torch

    shape = (batch, *BATCHES[model][1:])
    generator = torch.Generator().manual_seed(7)
    images = torch.randn(shape, generator=generator)
    labels = torch.randint(CLASSES[model], (shape[0],), generator=generator)
    return images, labels


def our_step(
    model: str,
    batch: int,
    device: str,
    precision: str,
    recompute: str = "off",
    autotune: str = "off",
    winograd: str = "off",
) -> Step:
    """Return the engine's solver on the model's train net, its Data layer replaced by fixed inputs.

    All steps of a call are one `Solver.step`, as all of a training are.
    """
    from mgcaffe.prototxt import LayerParameter, SolverParameter, read_net
    from mgcaffe.solvers.solver import Solver

    net = read_net(ROOT / "models" / model / "train_val.prototxt")
    layers = [layer for layer in net.layer if layer.type != "Data" and not is_auxiliary(layer.name)]
    source = LayerParameter(name="data", type="Input", top=["data", "label"])
    source.input_param.shape.add().dim.extend((batch, *BATCHES[model][1:]))
    source.input_param.shape.add().dim.append(batch)
    del net.layer[:]
    net.layer.extend([source, *layers])
    solver = SolverParameter(base_lr=RATE, lr_policy="fixed", momentum=MOMENTUM, weight_decay=DECAY)
    solver.max_iter, solver.random_seed, solver.recompute = 10**6, 1, recompute
    solver.snapshot_after_train = False
    solver.net_param.CopyFrom(net)
    solver.precision, solver.autotune = precision, autotune
    solver.winograd = SolverParameter.Winograd.Value(winograd.upper())
    trainer = Solver(solver, device=device)
    for top, values in zip(trainer.net.layers[0].forward([]), batch_of(model, batch), strict=True):
        top.copy_(values)
    return trainer.step


def is_auxiliary(name: str) -> bool:
    """Return whether a layer belongs to GoogLeNet's auxiliary heads, which the benchmark leaves out."""
    return name.startswith(("loss1/", "loss2/"))


def torch_step(model: str, side: str, batch: int, device: str, precision: str) -> Step:
    """Return the same net in plain PyTorch."""
    import torch

    torch.manual_seed(1)
    set_precision(device, precision)
    net = build(model).to(device)
    images, labels = (each.to(device) for each in batch_of(model, batch))
    if side == "channels_last" or (side == "compile" and device == "cuda"):
        net = net.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last)
    run = net
    if side == "compile":
        run = torch.compile(net, mode="max-autotune") if device == "cuda" else torch.compile(net)
    on_gpu = {"fused": True} if device == "cuda" else {}
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY, **on_gpu)
    narrow = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    mixed: Any = contextlib.nullcontext() if narrow is None else torch.autocast(device, narrow)
    scaler = torch.amp.GradScaler(device) if precision == "fp16" else None

    def step() -> float:
        optimizer.zero_grad()
        with mixed:
            loss = torch.nn.functional.cross_entropy(run(images), labels)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return loss.item()

    def steps(count: int) -> list[float]:
        return [step() for _ in range(count)]

    return steps


def flops_of_step(model: str, batch: int) -> int:
    """Return the operations of products and convolutions in a pass both ways, as the direct methods make them."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        net, images = build(model), torch.empty(batch, *BATCHES[model][1:])
    with FlopCounterMode(display=False) as counter:
        net(images).sum().backward()
    return int(counter.get_total_flops())


def steps_of_turn(seconds: float) -> int:
    """Return how many steps of so many seconds a turn has."""
    return max(1, round(_TURN_S / seconds))


def take_turn(step: Step, wait: Callable[[], None], steps: int) -> tuple[float, float]:
    """Return the mean seconds of a step in a turn: by the clock, and of processor time.

    Other sides have filled the caches, and their idle OpenMP threads spin for some milliseconds. Training steps follow
    each other, so the first one does not count, unless a turn has no other.

    Args:
        step: makes so many steps.
        wait: returns once the step has ended.
        steps: how many count.
    """
    time.sleep(_SPIN_S)
    if steps > 1:
        step(1)
    wait()
    start, cpu = time.perf_counter(), time.process_time()
    step(steps)
    wait()
    return (time.perf_counter() - start) / steps, (time.process_time() - cpu) / steps


def serve(options: argparse.Namespace) -> None:
    """Build the side, then take a turn for every line."""
    is_ours = options.side in OURS
    ours_malloc = is_ours or options.same_malloc
    if ours_malloc:
        from mgcaffe.engine.heap import keep_blocks, map_blocks
        from mgcaffe.tools.running.steady_memory import speed_up_training

        speed_up_training()
    warnings.simplefilter("ignore")  # what PyTorch says of its compiler and settings would lie between the tables
    import torch

    torch.set_num_threads(options.threads)
    on_gpu = options.device == "cuda"
    torch.backends.cudnn.benchmark = on_gpu
    if is_ours:
        importlib.import_module("mgcaffe.solvers.solver")  # imports belong to the base line
    base = memory_kib("VmRSS")
    precision = "float32" if options.side == "ours_float32" else options.precision
    arguments = options.batch, options.device, precision
    if is_ours:
        choice = ("off", "off") if options.side == "ours_rules" else (options.autotune, options.winograd)
        if options.side == "ours_layers":
            importlib.import_module("mgcaffe.engine.capture.replayed_pass").FEWEST = sys.maxsize
        step = our_step(options.model, *arguments, OURS[options.side], *choice)
    else:
        step = torch_step(options.model, options.side, *arguments)
    if ours_malloc and not on_gpu:
        map_blocks()
        step(1)
        keep_blocks()
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    step(2)
    steps = steps_of_turn(take_turn(step, wait, 1)[0])
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    else:
        reset_peak()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        if line.strip() == "end":
            break
        print(json.dumps(take_turn(step, wait, steps)), flush=True)
    peak = torch.cuda.max_memory_allocated() / 1024 if on_gpu else memory_kib("VmHWM") - base
    print(json.dumps({"peak_kib": peak}), flush=True)


def main() -> None:
    """Read what benchmarks/step.py asks for: a side, or the operations of a model's step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side")
    parser.add_argument("model", choices=list(BATCHES))
    for name in ("--batch", "--threads"):
        parser.add_argument(name, type=int, required=True)
    for name in ("--device", "--precision"):
        parser.add_argument(name, required=True)
    parser.add_argument("--same_malloc", action="store_true")
    for name in ("--autotune", "--winograd"):
        parser.add_argument(name, default="off")
    options = parser.parse_args()
    if options.side == "flops":
        print(flops_of_step(options.model, options.batch))
    else:
        serve(options)


if __name__ == "__main__":
    main()
